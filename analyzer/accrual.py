"""Adds what an engine did between two scrapes to the target's ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from analyzer import goodput
from analyzer.goodput import Marginal
from analyzer.histogram import Histogram
from analyzer.ledger import Labels, Ledger
from analyzer.slo import SloClass, assign
from analyzer.snapshot import Increase

HISTOGRAMS = ("ttft", "itl", "tpot", "e2e", "queue")
UNATTRIBUTED = "unattributed"
OF_CRITERION = "goodput_engine_criterion_"
OF_PERCENTILE = "goodput_engine_percentile_"
# canonical signal → metric, for counters without a label of their own
_PLAIN = {
    "preemptions": "goodput_engine_preemptions_total",
    "generation_tokens": "goodput_engine_generation_tokens_total",
    "prefix_cache_queries": "goodput_engine_prefix_cache_queries_tokens_total",
    "prefix_cache_hits": "goodput_engine_prefix_cache_hits_tokens_total",
    "draft_tokens": "goodput_engine_draft_tokens_total",
    "accepted_tokens": "goodput_engine_accepted_tokens_total",
}
LABELLED = {
    "finished": "goodput_engine_finished_requests_total",
    "rejections": "goodput_engine_rejected_requests_total",
    "prompt_tokens_by_source": "goodput_engine_prompt_tokens_total",
}
_SUMS = {
    "prefill": "goodput_engine_prefill_seconds_total",
    "decode": "goodput_engine_decode_seconds_total",
}


@dataclass(frozen=True, slots=True)
class ModelIncrease:
    """One model's growth, summed over its ranks."""

    model: str
    counters: Mapping[tuple[str, str], float]  # (signal, extra)
    histograms: Mapping[str, Histogram]

    def total(self, signal: str) -> float | None:
        """Returns a counter's growth over its label, None when there is none."""
        found = [v for (name, _), v in self.counters.items() if name == signal]
        return sum(found) if found else None

    @property
    def finished(self) -> float | None:
        """Requests that finished: by the E2E histogram, else by finish reason."""
        e2e = self.histograms.get("e2e")
        return e2e.count if e2e is not None else self.total("finished")


def by_model(increase: Increase) -> dict[str, ModelIncrease]:
    """Returns the growth of each model over its ranks."""
    counters: dict[str, dict[tuple[str, str], float]] = {}
    histograms: dict[str, dict[str, Histogram]] = {}
    for group, value in increase.counters.items():
        if group.model:
            rows = counters.setdefault(group.model, {})
            key = (group.signal, group.extra)
            rows[key] = rows.get(key, 0.0) + value
    for group, histogram in increase.histograms.items():
        known = histograms.setdefault(group.model, {})
        past = known.get(group.signal)
        known[group.signal] = histogram if past is None else past + histogram
    return {
        model: ModelIncrease(model, counters.get(model, {}), histograms.get(model, {}))
        for model in sorted(counters.keys() | histograms.keys())
    }


def accrue(ledger: Ledger, grown: ModelIncrease, *, histograms: bool = True) -> None:
    """Adds one model's growth to its engine rows; rows begin at 0 at first sight."""
    model = (grown.model,)
    for (signal, extra), value in grown.counters.items():
        if signal in _PLAIN:
            ledger.add(_PLAIN[signal], model, value)
        elif signal in LABELLED:
            ledger.add(LABELLED[signal], (*model, extra), value)
    by_source = ("prompt_tokens_by_source", "local_compute") in grown.counters
    prompt = grown.total("prompt_tokens")
    if prompt is not None and not by_source:
        ledger.add(LABELLED["prompt_tokens_by_source"], (*model, UNATTRIBUTED), prompt)
    for signal, name in _SUMS.items():
        if signal in grown.histograms:
            ledger.add(name, model, max(0.0, grown.histograms[signal].sum))
    single = single_token_requests(grown.histograms.get("generation_length"))
    if single is not None:
        ledger.add("goodput_engine_single_token_requests_total", model, single)
    if histograms:
        for signal in HISTOGRAMS:
            if signal in grown.histograms:
                name = f"goodput_engine_{signal}_seconds"
                ledger.add_histogram(name, model, grown.histograms[signal])


def drop_unwanted(ledger: Ledger, classes: Collection[SloClass]) -> None:
    """Removes rows of classes, criteria and percentiles that are not configured.

    What is published and never counts again leaves its class without a lower bound.
    """
    wanted: Mapping[str, set[Labels]] = {
        OF_CRITERION: {(c.name, criterion) for c in classes for criterion in c.good},
        OF_PERCENTILE: {(c.name, *level) for c in classes for level in c.percentiles},
    }
    for name, rows in ledger.counters.items():
        for prefix, kept in wanted.items():
            if name.startswith(prefix):
                for labels in [labels for labels in rows if labels[1:] not in kept]:
                    del rows[labels]


def accrue_criteria(
    ledger: Ledger,
    grown: ModelIncrease,
    slo_class: SloClass,
    *,
    longest_prompt: float,
) -> dict[str, Marginal]:
    """Adds one model's growth to its class's criteria and returns it."""
    found = goodput.marginals(
        slo_class, grown.histograms, grown.finished, longest_prompt
    )
    for criterion, marginal in found.items():
        labels = (grown.model, slo_class.name, criterion)
        for name, value in (
            ("events", marginal.events),
            ("good_events_lower", marginal.lower),
            ("good_events_upper", marginal.upper),
        ):
            ledger.add(f"{OF_CRITERION}{name}_total", labels, max(0.0, value))
    return found


def accrue_percentiles(
    ledger: Ledger, grown: ModelIncrease, slo_class: SloClass
) -> None:
    """Adds one model's growth to its class's percentiles."""
    found = goodput.percentile_events(slo_class, grown.histograms)
    for percentile, marginal in found.items():
        labels = (grown.model, slo_class.name, *percentile)
        for name, value in (
            ("events", marginal.events),
            ("good_events_upper", marginal.upper),
        ):
            ledger.add(f"{OF_PERCENTILE}{name}_total", labels, max(0.0, value))


def single_token_requests(lengths: Histogram | None) -> float | None:
    """Returns the requests of at most one output token, None without that bound."""
    if lengths is None or 1.0 not in lengths.bounds:
        return None
    return lengths.counts[lengths.bounds.index(1.0)]


def names_of(model: str, aliases: Mapping[str, str]) -> Collection[str]:
    """Returns every name a served model goes by: its own and those mapped to it."""
    return (model, *(alias for alias, served in aliases.items() if served == model))


def class_of(
    model: str, classes: tuple[SloClass, ...], aliases: Mapping[str, str]
) -> tuple[SloClass | None, str]:
    """Returns the class that judges *model*'s engine metrics, or None and why."""
    found = assign(classes, names_of(model, aliases))
    return found.slo_class, found.reason


def moved(increase: Increase) -> bool:
    """Whether the engine made progress: one of its own counters grew.

    The API server's counters go on while the engine hangs, and so do its refusals.
    """
    return any(
        value > 0 and group.model and group.signal != "rejections"
        for group, value in increase.counters.items()
    ) or any(histogram.count > 0 for histogram in increase.histograms.values())


def completions(increase: Increase, *, status: str = "2") -> float | None:
    """Returns the generation answers that ended with a *status* of that first digit.

    None when the API server does not count them.
    """
    found = [
        value
        for group, value in increase.counters.items()
        if group.signal == "http_completions" and group.extra.startswith(status)
    ]
    return sum(found) if found else None
