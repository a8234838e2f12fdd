"""All that the rules look at, at one moment, for one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.diagnosis.arrivals import Burstiness
from analyzer.diagnosis.forecast import Exhaustion
from analyzer.diagnosis.hops import Hops
from analyzer.diagnosis.intervals import Interval, Stretch
from analyzer.diagnosis.step_time import FixedShare
from analyzer.diagnosis.thresholds import (
    AT_CAP,
    FIXED_SHARE,
    FIXED_SHARE_LATE,
    FIXED_SHARE_PREFILL,
    KV_HIGH,
    KV_PROMPTS,
    LEAVE,
    MISSED_EVENTS,
    MISSED_MOST,
    PREFILL_NEARLY_ALL,
    PREFILL_TOKENS,
)
from analyzer.verdict import Evidence, Family, Verdict

ENGINE = "engine"
STEP_CAUSES = ("prefill", "decode", "hbm_bandwidth")  # of which a step is the limit
DECODE_WEIGHT = 2.0  # of an output token against a prompt token, see PREFILL_TOKENS


@dataclass(frozen=True, slots=True)
class Knobs:
    """The settings that decide about capacity, as far as they are known.

    `seqs_source` says who told `max_num_seqs`: declared or engine.
    """

    max_num_seqs: float | None = None
    seqs_source: str = ""
    max_num_batched_tokens: float | None = None
    kv_tokens: float | None = None
    prefix_caching: bool | None = None
    kv_dtype: str = ""
    memory_utilization: float | None = None
    blocks_override: bool = False
    tensor_parallel: float | None = None
    pipeline_parallel: float | None = None


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """The mean activity of a rank's GPUs as ratios; None is not told.

    `age` is that of the data in seconds. `throttled` and `power_capped` are shares of
    time, `power` the highest draw over its limit.
    """

    dram: float | None = None
    tensor: float | None = None
    sm: float | None = None
    power: float | None = None
    age: float = 0.0
    throttled: float | None = None
    power_capped: float | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """One rank at `at`: `now` sums up `recent`, `longer` the 20 seconds of `lately`.

    `queued_seconds` is how long the queue has been there, `hops` what gateways saw of
    the model's requests. `limits` has the SLO's
    thresholds in seconds by criterion. `signals` are those on the page.
    `fixed_longer` is known while a step is the limit, so that a few seconds
    without prompts do not lift it. `pinned` says that the batch stays at the largest
    seen with requests waiting.
    """

    at: float
    now: Stretch
    longer: Stretch
    recent: Sequence[Interval]
    lately: Sequence[Interval]
    queued_seconds: float = 0.0
    fixed: FixedShare | None = None
    fixed_longer: FixedShare | None = None
    burst: Burstiness | None = None
    forecast: Exhaustion | None = None
    knobs: Knobs = field(default_factory=Knobs)
    limits: Mapping[str, float] = field(default_factory=dict)
    signals: frozenset[str] = frozenset()
    gpu: GpuActivity | None = None
    hops: Hops | None = None
    in_force: Verdict | None = None
    pinned: bool | None = None

    def eased(self, limit: float) -> float:
        """Returns *limit*, further off while a step is the limit."""
        return limit * LEAVE.value if bound_by_step(self.in_force) else limit

    @property
    def prefill_share(self) -> float | None:
        """The share of prompts in the work, None when either part is not told."""
        prefill, decode = self.longer.prefill, self.longer.decode
        if prefill is None or decode is None or not prefill + decode:
            return None
        return prefill / (prefill + DECODE_WEIGHT * decode)

    @property
    def mostly_prefill(self) -> bool | None:
        """Whether prompts are most of the work, None when that is unknown."""
        share = self.prefill_share
        return None if share is None else share >= PREFILL_TOKENS.value

    def missed(self, criterion: str) -> float | None:
        """Returns the share of requests that surely missed *criterion* lately."""
        return self.longer.missed_share(criterion, MISSED_EVENTS.value)

    @property
    def mean_prompt(self) -> float | None:
        """The computed tokens of a mean prompt."""
        number, tokens = self.longer.ttft.number, self.longer.prefill
        return tokens / number if number and tokens is not None else None

    @property
    def kv_floor(self) -> float:
        """The usage of KV blocks from which on a prompt may not fit."""
        prompt, tokens = self.mean_prompt, self.knobs.kv_tokens
        if prompt is None or not tokens:
            return KV_HIGH.value
        return max(0.5, min(KV_HIGH.value, 1.0 - KV_PROMPTS.value * prompt / tokens))

    @property
    def kv_full(self) -> bool | None:
        """Whether the KV cache was full lately, None when its usage is not told."""
        most = self.now.kv_most
        return None if most is None else most >= self.kv_floor

    @property
    def at_cap(self) -> bool | None:
        """Whether the batch has all the sequences it may have, None if unknown."""
        cap, most = self.knobs.max_num_seqs, self.now.running_most
        if cap is None or most is None:
            return None
        return most >= AT_CAP.value * cap

    @property
    def fixed_limit(self) -> float:
        """The fixed share below which admitting more does not help."""
        share = self.prefill_share
        if share is not None and share >= PREFILL_NEARLY_ALL.value:
            return self.eased(FIXED_SHARE_PREFILL.value)
        return self.eased(FIXED_SHARE.value)

    @property
    def saturated(self) -> bool | None:
        """Whether the step's content takes its time: no larger batch would help.

        None when it may be so, but no smaller batch was seen to compare with.
        """
        fixed = self.fixed
        if fixed is None:
            return None
        if fixed.likely < self.fixed_limit:
            return True
        longer = self.fixed_longer
        if longer is not None and longer.likely < self.fixed_limit:
            return True
        late = self.missed("tpot")
        most = late is not None and late >= MISSED_MOST.value
        if most and fixed.likely < self.eased(FIXED_SHARE_LATE.value):
            return True
        return False if fixed.estimate is not None else None

    def lacking(self, *signals: str) -> tuple[str, ...]:
        """Returns those of *signals* that the page does not have."""
        return tuple(s for s in signals if s not in self.signals)


def bound_by_step(verdict: Verdict | None) -> bool:
    """Whether *verdict* says that what is in a step is the limit."""
    if verdict is None:
        return False
    return verdict.cause in STEP_CAUSES or verdict.family is Family.COMPUTE


def evidence(
    signal: str, value: float | None, threshold: float | None, source: str = ENGINE
) -> tuple[Evidence, ...]:
    """Returns one piece of evidence, none when there is no value."""
    if value is None:
        return ()
    return (Evidence(signal, round(value, 4), threshold, source),)
