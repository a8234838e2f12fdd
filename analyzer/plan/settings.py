"""The settings of the server that was swept, and where each of them is from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.benchmarks.run import Knob
from analyzer.capacity.costs import StepCosts
from analyzer.capacity.settings import EngineConfig, SchedulerConfig
from analyzer.exposition import parse_text

INFO = "cache_config_info"
# vLLM's defaults where the accelerator does not decide (docs: engine arguments).
DEFAULTS = {
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "block_size": 16,
    "max_model_len": 8192,
}
NAMES = (*DEFAULTS, "num_gpu_blocks")
MOST_PLACES = 4096  # of a batch; more would take hours to simulate
NO_COSTS = StepCosts(base=0.0, prefill_token=0.0, decode_token=0.0, kv_token=0.0)


class PlanError(ValueError):
    """No plan can be made; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by vLLM's names, and where each is from: given, a knob, a page, assumed.

    Without a known number of blocks the cache is supposed to be ample.
    """

    values: Mapping[str, int]
    sources: Mapping[str, str]

    @property
    def assumed(self) -> tuple[str, ...]:
        """The settings that nobody told, in words."""
        found = [
            f"{name} {self.values[name]} (vLLM's default)"
            for name in DEFAULTS
            if self.sources[name] == "assumed"
        ]
        if not self.knows_cache:
            found.append("a KV cache that never fills (num_gpu_blocks is not known)")
        return tuple(found)

    @property
    def knows_cache(self) -> bool:
        """Whether the size of the KV cache is known."""
        return "num_gpu_blocks" in self.values

    def engine(self, costs: StepCosts = NO_COSTS) -> EngineConfig:
        """Returns a replica with these settings. Raises PlanError where they clash."""
        values = self.values
        block, length = values["block_size"], values["max_model_len"]
        ample = values["max_num_seqs"] * math.ceil(length / block) + 1
        blocks = values.get("num_gpu_blocks", ample)
        if blocks < 2:  # one is the null block
            raise PlanError("the settings do not go together: a KV cache of one block")
        if values["max_num_seqs"] > MOST_PLACES:
            raise PlanError(f"max_num_seqs above {MOST_PLACES} is not simulated")
        try:
            scheduler = SchedulerConfig(
                num_blocks=blocks,
                block_size=block,
                # A cache of fewer tokens than the model's length holds what it holds.
                max_model_len=min(length, (blocks - 1) * block),
                max_num_seqs=values["max_num_seqs"],
                max_num_batched_tokens=values["max_num_batched_tokens"],
            )
        except ValueError as error:
            raise PlanError(f"the settings do not go together: {error}") from None
        return EngineConfig(scheduler, costs)


def settings_of(
    given: Mapping[str, int],
    knobs: Mapping[str, Knob],
    page: Mapping[str, int],
    *,
    longest: int,
) -> Settings:
    """Returns the settings; what is *given* goes before a file's *knobs* and a *page*.

    A model's length that nobody told holds the *longest* request, in tokens.
    """
    values: dict[str, int] = {}
    sources: dict[str, str] = {}
    for name in NAMES:
        for source, known in (
            ("given", given),
            ("benchmark", _whole(knobs)),
            ("page", page),
        ):
            if name in known:
                values[name], sources[name] = known[name], source
                break
        else:
            if name in DEFAULTS:
                values[name], sources[name] = DEFAULTS[name], "assumed"
    if sources["max_model_len"] == "assumed":
        values["max_model_len"] = max(values["max_model_len"], longest)
    if sources["max_num_batched_tokens"] == "assumed":
        # vLLM raises it as well.
        values["max_num_batched_tokens"] = max(
            values["max_num_batched_tokens"], values["max_num_seqs"]
        )
    return Settings(values, sources)


def _whole(knobs: Mapping[str, Knob]) -> dict[str, int]:
    """Returns the knobs that are settings, whatever their dashes."""
    found = {}
    for name, value in knobs.items():
        known = name.lower().lstrip("-").replace("-", "_")
        number = _positive(str(value))
        if known in NAMES and number is not None:
            found[known] = number
    return found


def _positive(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number >= 1 and number.is_integer() else None


def settings_on_page(text: str) -> dict[str, int]:
    """Returns what a saved page of an engine's metrics tells of its cache.

    Raises PlanError when it has no `cache_config_info`.
    """
    found: dict[str, int] = {}
    seen = False
    for sample in parse_text(text):
        if not sample.name.endswith(INFO):
            continue
        seen = True
        for name in ("num_gpu_blocks", "block_size"):
            number = _positive(sample.labels.get(name, ""))
            if number is not None:
                found[name] = number
    if not seen:
        raise PlanError(f"the page has no {INFO}")
    return found


def changed(settings: Settings, name: str, value: int) -> Settings:
    """Returns *settings* with one of them changed, and what has to follow it.

    As many tokens as sequences must fit into a step; blocks of another size are of
    the same memory.
    """
    values = {**settings.values, name: value}
    if name == "max_num_seqs":
        values["max_num_batched_tokens"] = max(values["max_num_batched_tokens"], value)
    if name == "block_size" and settings.knows_cache:
        tokens = settings.values["num_gpu_blocks"] * settings.values["block_size"]
        values["num_gpu_blocks"] = max(1, tokens // value)
    return Settings(values, settings.sources)
