"""Worlds for alerts: series in promtool's notation, and what should come of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SITE = 'cluster="eu",namespace="serving"'
SCRAPED = f'{SITE},job="goodput",instance="10.0.0.7:10555"'
MINUTE = 60.0
HOUR = 60 * MINUTE
URL = "https://example.com/runbooks"
MODEL = {"cluster": "eu", "namespace": "serving", "model": "m"}
CLASS = {**MODEL, "slo_class": "interactive"}
POOL = {"cluster": "eu", "namespace": "serving", "job": "goodput"}
INSTANCE = {**POOL, "instance": "10.0.0.7:10555"}
TARGET = {**INSTANCE, "target": "vllm"}
FAULT = {"severity": "warning", "constraint": "fault"}
Series = Mapping[str, str]


def counter(per_second: float, *, minutes: int = 400, begin: float = 0.0) -> str:
    """Returns a counter that grows steadily, one value a minute."""
    return f"{begin:g}+{per_second * 60:.10g}x{minutes}"


def level(value: float, *, minutes: int = 400) -> str:
    """Returns a gauge that stays where it is, one value a minute."""
    return f"{value:g}x{minutes}"


def steps(*parts: tuple[float, int]) -> str:
    """Returns a counter that grows by so much a second for so many minutes each."""
    values, total = [], 0.0
    for per_second, minutes in parts:
        for _ in range(minutes):
            values.append(f"{total:.10g}")
            total += per_second * 60
    return " ".join(values)


def exact(
    bad: float, *, rate: float = 2.0, minutes: int = 400, unevaluable: float = 0.0
) -> dict[str, str]:
    """Returns a log's counters: *rate* requests a second, a share *bad* of them."""
    labels = f'{{{SCRAPED},gateway="edge",model="m",slo_class="interactive"}}'
    judged = rate * (1 - unevaluable)
    return {
        f"goodput_requests_total{labels}": counter(rate, minutes=minutes),
        f"goodput_good_requests_total{labels}": counter(
            judged * (1 - bad), minutes=minutes
        ),
        f"goodput_bad_requests_total{labels}": counter(judged * bad, minutes=minutes),
        f"goodput_unevaluable_requests_total{labels}": counter(
            rate * unevaluable, minutes=minutes
        ),
        **objective(minutes=minutes),
    }


def objective(value: float = 0.95, *, minutes: int = 400) -> dict[str, str]:
    """Returns the objective as the exporter publishes it."""
    name = f'goodput_slo_objective_ratio{{{SCRAPED},slo_class="interactive"}}'
    return {name: level(value, minutes=minutes)}


def bounded(lower: float, upper: float, *, minutes: int = 400) -> dict[str, str]:
    """Returns an engine's criteria; e2e holds always, ttft between the bounds."""
    found = dict(objective(minutes=minutes))
    for criterion, low, high in (("ttft", lower, upper), ("e2e", 1.0, 1.0)):
        labels = (
            f'{{{SCRAPED},target="vllm",model="m",slo_class="interactive",'
            f'criterion="{criterion}"}}'
        )
        for name, share in (
            ("events", 1.0),
            ("good_events_lower", low),
            ("good_events_upper", high),
        ):
            metric = f"goodput_engine_criterion_{name}_total{labels}"
            found[metric] = counter(2.0 * share, minutes=minutes)
    return found


def percentile_bound(upper: float, *, minutes: int = 400) -> dict[str, str]:
    """Returns an engine's TTFT, of which a share is possibly within its p95."""
    labels = (
        f'{{{SCRAPED},target="vllm",model="m",slo_class="interactive",'
        'criterion="ttft",percentile="p95"}'
    )
    return {
        f"goodput_engine_percentile_events_total{labels}": counter(
            2.0, minutes=minutes
        ),
        f"goodput_engine_percentile_good_events_upper_total{labels}": counter(
            2.0 * upper, minutes=minutes
        ),
    }


def verdicts(shares: Mapping[tuple[str, str], float]) -> dict[str, str]:
    """Returns the time under each (family, cause), as shares of it."""
    return {
        f"goodput_constraint_seconds_total{{{engine()[1:-1]},"
        f'family="{family}",cause="{cause}"}}': counter(share)
        for (family, cause), share in shares.items()
    }


def engine(target: str = "vllm") -> str:
    """Returns the labels of an engine's series."""
    return f'{{{SCRAPED},target="{target}",model="m"}}'


def states(**current: str) -> dict[str, str]:
    """Returns the one-hot states of engines, by name."""
    return {
        f'goodput_engine_state{{{SCRAPED},target="{target}",state="{state}"}}': level(
            float(state == now)
        )
        for target, now in current.items()
        for state in ("serving", "down", "stalled", "stats_disabled", "starting")
    }


@dataclass(frozen=True)
class Case:
    """An alert, a world in which it fires, and what makes it fall just short.

    Every series is of the cluster `eu`.
    `below` replaces series of `fires`. Without the metrics `needs` it must be silent.
    `labels` are all of them but the name; `texts` are parts of annotations.
    """

    alert: str
    fires: Series
    below: Series
    needs: tuple[str, ...]
    labels: Mapping[str, str]
    texts: Mapping[str, str]
    at: float = 40 * MINUTE
    name: str = field(default="")

    @property
    def title(self) -> str:
        """What tells it from other cases of the alert."""
        return self.name or self.alert

    def absent(self) -> dict[str, str]:
        """Returns the world without the metrics that the alert needs."""
        kept = {
            k: v for k, v in self.fires.items() if k.split("{")[0] not in self.needs
        }
        assert len(kept) < len(self.fires), f"{self.title}: nothing to leave out"
        return kept
