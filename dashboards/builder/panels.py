"""Panels by kind: what all of ours share is set here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    text,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import heatmap as h
from grafana_foundation_sdk.models import prometheus as p

DATASOURCE = d.DataSourceRef(type_val="prometheus", uid="${datasource}")
NO_TRAFFIC = "No traffic"
GOOD, WARN, BAD, PLAIN, DIM = "green", "orange", "red", "blue", "gray"
LIMITS = (
    "objective|target|budget|(page |ticket |(DRAM )?evidence )?limit|practical peak"
)
LIMIT = f"/^({LIMITS})\\b/"
Step = tuple[float | None, str]


@dataclass(frozen=True, slots=True)
class About:
    """What a reader is told: the title, what is shown, when it is fine, what to do.

    `nothing` stands in place of the figures when there are none.
    """

    title: str
    shows: str
    good: str
    act: str
    nothing: str = NO_TRAFFIC

    @property
    def text(self) -> str:
        """The description behind the panel's (i)."""
        return f"{self.shows}\n\n**Good:** {self.good}\n\n**Otherwise:** {self.act}"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL with the name of its series; `now` asks for the latest value only."""

    expr: str
    name: str = ""
    now: bool = False
    format: p.PromQueryFormat = p.PromQueryFormat.TIME_SERIES

    def target(self, index: int) -> prometheus.Dataquery:
        """Returns the query as a panel's *index*-th."""
        made = prometheus.Dataquery().expr(self.expr).legend_format(self.name)
        made = made.ref_id(chr(ord("A") + index)).format(self.format)
        return made.instant() if self.now else made.range()


class AnyPanel(Protocol):
    """What every kind of panel's builder can be told."""

    def title(self, title: str) -> Self: ...  # noqa: D102 - the builder's own
    def description(self, description: str) -> Self: ...  # noqa: D102
    def datasource(self, datasource: d.DataSourceRef) -> Self: ...  # noqa: D102
    def with_target(self, target: Builder[Dataquery]) -> Self: ...  # noqa: D102
    def no_value(self, no_value: str) -> Self: ...  # noqa: D102


Kind = TypeVar("Kind", bound=AnyPanel)


def begin(kind: Kind, about: About, queries: Sequence[Query]) -> Kind:
    """Returns a panel's builder with its texts and queries."""
    kind = kind.title(about.title).description(about.text).datasource(DATASOURCE)
    kind = kind.no_value(about.nothing)
    for index, query in enumerate(queries):
        kind = kind.with_target(query.target(index))
    return kind


def steps(*given: Step) -> dashboard.ThresholdsConfig:
    """Returns thresholds: a colour from each value upwards."""
    config = dashboard.ThresholdsConfig().mode(d.ThresholdsMode.ABSOLUTE)
    return config.steps(
        [d.Threshold(value=value, color=color) for value, color in given]
    )


def spans(*given: tuple[float, float, str, str]) -> list[d.ValueMapping]:
    """Returns what stands in place of values within a span: the text and its colour."""
    return [
        d.RangeMap(
            options=d.DashboardRangeMapOptions(
                from_val=low,
                to=high,
                result=d.ValueMappingResult(text=said, color=color, index=index),
            )
        )
        for index, (low, high, said, color) in enumerate(given)
    ]


def words(*given: tuple[int, str, str]) -> list[d.ValueMapping]:
    """Returns what stands in place of whole numbers: the text and its colour."""
    options = {
        str(number): d.ValueMappingResult(text=said, color=color, index=index)
        for index, (number, said, color) in enumerate(given)
    }
    return [d.ValueMap(options=options)]


def tile(
    about: About,
    *queries: Query,
    unit: str = "none",
    colors: Sequence[Step] = ((None, PLAIN),),
    said: Sequence[d.ValueMapping] = (),
    others: Sequence[tuple[str, str, Sequence[Step]]] = (),
    named: bool = False,
    spark: bool = False,
) -> d.Panel:
    """Returns one large figure for each series; *named* shows the name in its place.

    A figure that is the only one needs no name: the title has it. *others* are the
    names, units and colours of series that differ. A tile tells of now: only one with
    a curve behind it (*spark*) asks for the past.
    """
    asked = queries if spark else [replace(query, now=True) for query in queries]
    panel = begin(stat.Panel(), about, asked).unit(unit).thresholds(steps(*colors))
    alone = len(queries) == 1 and "{{" not in queries[0].name
    text = c.BigValueTextMode.VALUE if alone else c.BigValueTextMode.VALUE_AND_NAME
    panel = panel.text_mode(c.BigValueTextMode.NAME if named else text)
    panel = panel.mappings(list(said)) if said else panel
    for name, other, shades in others:
        levels = d.DynamicConfigValue("thresholds", steps(*shades).build())
        looks = [d.DynamicConfigValue("unit", other), levels]
        panel = panel.override_by_name(name, looks)
    if named:  # a name is longer than a figure
        panel = panel.text(common.VizTextDisplayOptions().title_size(24).value_size(24))
    panel = panel.color_mode(c.BigValueColorMode.BACKGROUND)
    panel = panel.min(0) if spark else panel
    graph = c.BigValueGraphMode.AREA if spark else c.BigValueGraphMode.NONE
    reduced = common.ReduceDataOptions().calcs(["lastNotNull"])
    panel = panel.graph_mode(graph).reduce_options(reduced)
    return panel.justify_mode(c.BigValueJustifyMode.CENTER).build()


def series(
    about: About,
    *queries: Query,
    unit: str = "none",
    stack: bool = False,
    filled: bool = False,
    least: float | None = None,
    most: float | None = None,
    colors: Sequence[tuple[str, str]] = (),
    span_from: str = "",
    log: bool = False,
) -> d.Panel:
    """Returns lines over time; limits are dashed red, known by their names.

    *colors* are patterns of names with the colour of their lines. The axis ends at
    *most*, or no lower than at *least*: one of zeros alone would end at 100. A *log*
    axis is for lines of different orders of magnitude.
    """
    panel = begin(timeseries.Panel(), about, queries).unit(unit)
    if log:
        scale = common.ScaleDistributionConfig().type(c.ScaleDistribution.LOG)
        panel = panel.scale_distribution(scale.log(10))
    else:
        panel = panel.min(0)
    panel = panel.line_width(2).fill_opacity(40 if stack else 15 if filled else 0)
    panel = panel.show_points(c.VisibilityMode.NEVER)
    legend = common.VizLegendOptions().display_mode(c.LegendDisplayMode.LIST)
    legend = legend.placement(c.LegendPlacement.BOTTOM).show_legend(True)
    panel = panel.legend(legend.calcs(["lastNotNull"]))
    tooltip = common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI)
    panel = panel.tooltip(tooltip.sort(c.SortOrder.DESCENDING))
    if most is not None:
        panel = panel.max(most)
    if least is not None:
        panel = panel.axis_soft_max(least)
    if stack:
        normal = common.StackingConfig().mode(c.StackingMode.NORMAL).group("A")
        panel = panel.stacking(normal).line_width(1)
    if span_from:
        panel = panel.time_from(span_from)
    for pattern, color in colors:
        panel = panel.override_by_regexp(f"/{pattern}/", [fixed(color)])
    return panel.override_by_regexp(LIMIT, _LIMIT_LINE).build()


def fixed(color: str) -> d.DynamicConfigValue:
    """Returns the property that gives a field one colour."""
    return d.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})


_LIMIT_LINE = [
    fixed(BAD),
    d.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 8]}),
    d.DynamicConfigValue("custom.lineWidth", 1),
    d.DynamicConfigValue("custom.fillOpacity", 0),
    d.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "A"}),
]


def spread(about: About, query: Query, *, unit: str) -> d.Panel:
    """Returns a histogram over time; the query's series are its buckets."""
    shown = Query(query.expr, "{{le}}", format=p.PromQueryFormat.HEATMAP)
    panel = begin(heatmap.Panel(), about, [shown]).unit(unit).calculate(False)
    axis = heatmap.YAxisConfig().unit(unit).axis_placement(c.AxisPlacement.LEFT)
    color = heatmap.HeatmapColorOptions().mode(h.HeatmapColorMode.SCHEME)
    color = color.scheme("Oranges").steps(64).exponent(0.5)
    return panel.y_axis(axis).color(color).build()


def states(
    about: About, *queries: Query, said: Sequence[tuple[int, str, str]]
) -> d.Panel:
    """Returns a band for each series, coloured and worded by its whole numbers."""
    panel = begin(statetimeline.Panel(), about, queries).mappings(words(*said))
    panel = panel.merge_values(True).show_value(c.VisibilityMode.AUTO)
    legend = common.VizLegendOptions().display_mode(c.LegendDisplayMode.LIST)
    legend = legend.placement(c.LegendPlacement.BOTTOM).show_legend(True)
    return panel.row_height(0.85).legend(legend).build()


def note(title: str, markdown: str) -> d.Panel:
    """Returns a text."""
    return text.Panel().title(title).content(markdown).build()
