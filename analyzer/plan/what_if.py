"""What one change would do to the rate that a replica can take, on the twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from analyzer.capacity.costs import StepCosts
from analyzer.capacity.machines import A100, H100, L4, Accelerator
from analyzer.capacity.settings import EngineConfig
from analyzer.plan.settings import MOST_PLACES, PlanError, Settings, changed

GPUS: Mapping[str, Accelerator] = MappingProxyType(
    {"l4": L4, "a100": A100, "h100": H100}
)
HELPS = 0.03  # less cannot be told from the chance of a few runs
_TRIED = (
    ("max_num_seqs", 2.0),
    ("max_num_seqs", 0.5),
    ("max_num_batched_tokens", 2.0),
    ("max_num_batched_tokens", 0.5),
    ("num_gpu_blocks", 2.0),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is different: in words, and the engine that has it.

    `measured` says whether the twin was fitted to what matters here; a GPU's data
    sheet was not. `price` is the hour's of a replica where it is another.
    """

    name: str
    engine: EngineConfig
    measured: bool = True
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does: rates by seed, and the gain of their middle as a share."""

    change: Change
    rates: tuple[float, ...]
    gain: float
    verdict: str  # helps, hurts or "no difference"
    good_tokens: float


def changes(
    settings: Settings, engine: EngineConfig, asked: Mapping[str, Sequence[int]]
) -> Iterator[Change]:
    """Yields the changes of settings to try: those *asked* for, or twice and half.

    Of a setting that nobody told, twice would be twice of a guess: it is left out.
    """
    if asked:
        for name, wanted in asked.items():
            for value in wanted:
                yield _change(settings, engine, name, value)
        return
    for name, factor in _TRIED:
        if settings.sources.get(name, "assumed") != "assumed":
            value = max(1, int(settings.values[name] * factor))
            if name == "max_num_batched_tokens":  # vLLM takes no less
                value = max(value, settings.values["max_num_seqs"])
            if name == "max_num_seqs":
                value = min(value, MOST_PLACES)
            if value != settings.values[name]:
                yield _change(settings, engine, name, value)


def untried(settings: Settings, asked: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Returns the settings that are left out because nobody told them."""
    if asked:
        return ()
    return tuple(
        name
        for name in dict.fromkeys(name for name, _ in _TRIED)
        if settings.sources.get(name, "assumed") == "assumed"
    )


def _change(settings: Settings, engine: EngineConfig, name: str, value: int) -> Change:
    other = changed(settings, name, value)
    now = settings.values.get(name)
    text = f"{name} {'ample' if now is None else now} → {value}"
    for also, follows in other.values.items():
        if also != name and follows != settings.values[also]:
            text += f" ({also} {follows})"
    try:
        scheduler = other.engine().scheduler
    except PlanError as error:
        raise PlanError(f"{text}: {error}") from None
    return Change(text, replace(engine, scheduler=scheduler))


def another_gpu(
    engine: EngineConfig, present: str, other: str, price: float | None
) -> Change:
    """Returns the engine on another GPU, by the ratios of their data sheets.

    Weights are read at its bandwidth, prompts computed at its FLOP/s. A sequence's
    own cost is both, so the worse ratio counts. The cache stays as it is. The names
    are of `GPUS`.
    """
    before, after = GPUS[present], GPUS[other]
    reading = (before.bandwidth * before.bandwidth_share) / (
        after.bandwidth * after.bandwidth_share
    )
    computing = (before.flops * before.flops_share) / (after.flops * after.flops_share)
    costs = engine.costs
    scaled = StepCosts(
        base=costs.base * reading,
        prefill_token=costs.prefill_token * computing,
        decode_token=costs.decode_token * max(reading, computing),
        kv_token=costs.kv_token * reading,
        prefill_pair=costs.prefill_pair * computing,
    )
    there = replace(engine, costs=scaled)
    return Change(f"{present} → {other}", there, measured=False, price=price)


def verdict(before: Sequence[float], after: Sequence[float]) -> str:
    """Returns what a change does, the same seeds before and after."""
    gains = [
        b / a - 1.0 if a else float(b > 0) for a, b in zip(before, after, strict=True)
    ]
    if all(gain > HELPS for gain in gains):
        return "helps"
    if all(gain < -HELPS for gain in gains):
        return "hurts"
    return "no difference"
