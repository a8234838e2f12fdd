"""Scatter plots: one figure against another, each point a moment, and where we are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, xychart
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import xychart as x

from builder.panels import About, Query, begin, fixed
from builder.query import LATEST

NOW = "now"


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one colour: what stands on the upright axis, by `name`."""

    name: str
    expr: str
    color: str


def scatter(
    about: About,
    *,
    across: Query,
    points: Sequence[Points],
    unit: str,
) -> d.Panel:
    """Returns *points* against *across*; the latest moments are large and white.

    Every query gives one series.
    """
    latest = f"and on () ({LATEST})"
    shown = [
        *points,
        *(Points(f"{p.name} {NOW}", f"({p.expr}) {latest}", "text") for p in points),
    ]
    queries = [across, *(Query(p.expr, p.name) for p in shown)]
    panel = begin(xychart.Panel(), about, queries).unit(unit).min(0)
    join = d.DataTransformerConfig(
        id_val="joinByField", options={"byField": "Time", "mode": "outer"}
    )
    panel = panel.with_transformation(join)
    panel = panel.mapping(x.SeriesMapping.MANUAL).show(x.XYShowMode.POINTS)
    panel = panel.axis_label("").fill_opacity(60)
    panel = panel.point_size(xychart.XychartFieldConfigPointSize().fixed(4))
    panel = panel.override_by_name(across.name, [d.DynamicConfigValue("unit", "short")])
    for point in shown:
        looks = [fixed(point.color)]
        if point.name.endswith(NOW):
            looks.append(d.DynamicConfigValue("custom.pointSize", {"fixed": 14}))
        panel = panel.override_by_name(point.name, looks)
    panel = panel.series([_plotted(across.name, point.name) for point in shown])
    legend = common.VizLegendOptions().display_mode(c.LegendDisplayMode.LIST)
    legend = legend.placement(c.LegendPlacement.BOTTOM).show_legend(True)
    return panel.legend(legend).build()


def _plotted(across: str, name: str) -> xychart.XYSeriesConfig:
    first = xychart.MatcherConfig().id("byIndex").options(0)

    def named(field: str) -> xychart.MatcherConfig:
        return xychart.MatcherConfig().id("byName").options(field)

    return (
        xychart.XYSeriesConfig()
        .name(xychart.XychartXYSeriesConfigName().fixed(name))
        .frame(xychart.XychartXYSeriesConfigFrame().matcher(first))
        .x(xychart.XychartXYSeriesConfigX().matcher(named(across)))
        .y(xychart.XychartXYSeriesConfigY().matcher(named(name)))
    )
