"""Recordings of the requests within a limit: percentiles and stages, from histograms.

A p95 is at most a second exactly when 95 % of requests take at most a second. The limit
is a bound of the exporter's histogram, so two of its series tell, in place of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.utils import floatToGoString

from analyzer.requests_total import STAGES
from analyzer.rules.requests import RATE, mean
from analyzer.rules.rule import CLASS, Options, Record, by
from analyzer.slo import SloClass, percentile

WINDOW = 3600.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A share of a class's requests that should take at most `seconds`.

    `name` is what the recordings call it, `matcher` chooses the stage, if any.
    """

    slo_class: str
    name: str
    metric: str
    matcher: str
    seconds: float
    share: float

    def selector(self, suffix: str, matchers: str = "") -> str:
        """Returns the series of the histogram that end in *suffix*."""
        chosen = f'slo_class="{self.slo_class}"{self.matcher}{matchers}'
        return f"{self.metric}_{suffix}{{{chosen}}}"

    @property
    def record(self) -> str:
        """The recorded share of requests within the limit, over an hour."""
        return f"slo_class:goodput_{self.name}_within:ratio_rate1h"

    @property
    def events(self) -> str:
        """The recorded rate of requests whose time is known."""
        return f"slo_class:goodput_{self.name}_observed:rate5m"


def percentile_limits(slo_class: SloClass) -> list[Limit]:
    """Returns the limits that a class's percentiles set."""
    return [
        Limit(
            slo_class.name,
            f"{criterion}_{level.replace('.', '_')}",
            f"goodput_request_{criterion}_seconds",
            "",
            seconds,
            percentile(level) or 0.0,
        )
        for (criterion, level), seconds in slo_class.percentiles.items()
    ]


def stage_limits(slo_class: SloClass) -> list[Limit]:
    """Returns the limits of a class's stages, which as many requests should keep."""
    return [
        Limit(
            slo_class.name,
            f"{stage}_stage",
            "goodput_request_stage_seconds",
            f',stage="{stage}"',
            seconds,
            slo_class.objective,
        )
        for stage, seconds in slo_class.stages.items()
        if stage in STAGES
    ]


def recordings(limits: Sequence[Limit], options: Options) -> Iterator[Record]:
    """Yields the rates of requests within each limit, and their share over an hour."""
    for name in dict.fromkeys(limit.name for limit in limits):
        alike = [limit for limit in limits if limit.name == name]
        span = options.span(RATE)
        within = f"slo_class:goodput_{name}_within:rate5m"
        yield Record(
            within,
            "\nor\n".join(
                _rate(limit.selector("bucket", f',le="{bound(limit.seconds)}"'), span)
                for limit in alike
            ),
        )
        observed = alike[0].events
        rates = [_rate(limit.selector("count"), span) for limit in alike]
        yield Record(observed, "\nor\n".join(rates))
        within, observed = (mean(r, WINDOW, options) for r in (within, observed))
        yield Record(alike[0].record, f"{within} / ({observed} > 0)")


def _rate(series: str, span: str) -> str:
    return f"sum {by(CLASS)} (rate({series}[{span}]))"


def bound(seconds: float) -> str:
    """Returns a bucket's bound as the exporter writes the label `le`."""
    return str(floatToGoString(seconds))  # type: ignore[no-untyped-call]
