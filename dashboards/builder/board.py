"""What every dashboard has: variables, annotations, links, a grid, stable ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as d

from builder.panels import DATASOURCE
from builder.query import INSTANCE, SITE

TAG = "llm-goodput"
COLUMNS = 24
ALL = d.VariableOption(selected=True, text="All", value="$__all")


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark over all panels where *expr* is above 0; its text is a legend's.

    For a label that a series lacks, Grafana would write the label's name: texts are
    made of labels that are always there, such as those that `said` joins.
    """

    name: str
    expr: str
    color: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side with their widths, which sum to 24, under one height.

    A `title` puts a heading above.
    """

    height: int
    cells: Sequence[tuple[int, d.Panel]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: `uid` is its address for ever, `variables` follow common ones.

    One that shows nothing of models is not `by_model`: it has no variable for them
    and no marks of their verdicts.
    """

    uid: str
    title: str
    description: str
    lines: Sequence[Line]
    variables: Sequence[dashboard.QueryVariable | dashboard.TextBoxVariable] = ()
    since: str = "now-1h"
    by_model: bool = True

    def built(self) -> dict[str, Any]:
        """Returns the dashboard as Grafana's JSON."""
        made = (
            dashboard.Dashboard(self.title)
            .uid(self.uid)
            .description(self.description)
            .tags([TAG])
            .timezone("browser")
            .refresh("30s")
            .time(self.since, "now")
            .tooltip(d.DashboardCursorSync.CROSSHAIR)
            .readonly()
            .link(_links())
        )
        places = _places() if self.by_model else _places()[:-1]
        for variable in (_datasource(), *places, *self.variables):
            made = made.with_variable(variable)
        marks = MARKS if self.by_model else MARKS[:-1]
        for mark in marks:
            query = dashboard.AnnotationQuery().name(mark.name).datasource(DATASOURCE)
            query = query.enable(True).icon_color(mark.color).expr(mark.expr)
            made = made.annotation(query)
        model = made.build()
        model.panels = _placed(self.lines)
        found: dict[str, Any] = json.loads(JSONEncoder().encode(model))
        # The SDK's annotations are those of any data source.
        for query, mark in zip(found["annotations"]["list"], marks, strict=True):
            query["titleFormat"] = mark.text
        return found


def _placed(lines: Sequence[Line]) -> list[d.Panel | d.RowPanel]:
    """Returns all panels in their places, numbered in reading order."""
    placed: list[d.Panel | d.RowPanel] = []
    top = 0
    for line in lines:
        if line.title:
            grid = d.GridPos(h=1, w=COLUMNS, x=0, y=top)
            heading = d.RowPanel(title=line.title, grid_pos=grid)
            placed.append(heading)
            top += 1
        left = 0
        for width, panel in line.cells:
            panel.grid_pos = d.GridPos(h=line.height, w=width, x=left, y=top)
            placed.append(panel)
            left += width
        top += line.height
    for number, one in enumerate(placed, 1):
        one.id_val = number
    return placed


def _datasource() -> dashboard.DatasourceVariable:
    chosen = d.VariableOption(selected=True, text="Prometheus", value="prometheus")
    variable = dashboard.DatasourceVariable("datasource").label("Data source")
    return variable.type("prometheus").current(chosen)


def values(
    name: str, label: str, series: str, source: str = ""
) -> dashboard.QueryVariable:
    """Returns a variable of the values that a label has in *series*."""
    query: dict[str, object] = {
        "query": f"label_values({series}, {source or name})",
        "refId": "V",
    }
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(d.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")  # also what lacks the label
        .current(ALL)
    )


def _places() -> tuple[dashboard.QueryVariable, ...]:
    """Returns the variables that choose the part of the fleet, widest first."""
    served = "goodput_engine_running_requests|goodput_requests_total"
    return (
        values("cluster", "Cluster", "goodput_build_info"),
        values("namespace", "Namespace", 'goodput_build_info{cluster=~"$cluster"}'),
        values("model", "Model", f'{{__name__=~"{served}",{SITE}}}'),
    )


def slo_classes() -> dashboard.QueryVariable:
    """Returns the variable that chooses SLO classes."""
    series = f"goodput_slo_objective_ratio{{{SITE}}}"
    return values("slo_class", "SLO class", series)


def exporters() -> dashboard.QueryVariable:
    """Returns the variable that chooses exporters."""
    return values("instance", "Exporter", f"goodput_build_info{{{SITE}}}")


def engines() -> tuple[dashboard.QueryVariable, dashboard.QueryVariable]:
    """Returns the variables that choose exporters and the engines they watch."""
    return (
        exporters(),
        values("target", "Engine", f"goodput_engine_state{{{INSTANCE}}}"),
    )


def typed(name: str, label: str, default: str) -> dashboard.TextBoxVariable:
    """Returns a variable that one types in."""
    chosen = d.VariableOption(selected=True, text=default, value=default)
    variable = dashboard.TextBoxVariable(name).label(label)
    return variable.default_value(default).current(chosen)


def _links() -> dashboard.DashboardLink:
    """Returns the links to all of our dashboards, with time and variables kept."""
    link = dashboard.DashboardLink("LLM goodput").type(d.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).include_vars(True).keep_time(True).as_dropdown(False)


# Recorded for each cluster and model, whatever the namespace.
SERVED = 'cluster=~"$cluster",model=~"$model"'
LEADING = f"model:goodput_constraint_leading:ratio_rate5m{{{SERVED}}}"


def said(expr: str, *labels: str) -> str:
    """Returns *expr* with a label `said` that has all of *labels* that there are."""
    listed = ", ".join(f'"{label}"' for label in labels)
    return f'label_join({expr}, "said", " ", {listed})'


ALERTS = f'ALERTS{{alertname=~"Goodput.+",alertstate="firing",{SITE}}}'
RESTARTS = f'goodput_target_resets_total{{reset="restart",kind="engine",{SITE}}}'
CHANGED = f"{LEADING}\nunless on (cluster, model, cause) {LEADING} offset 2m"
MARKS = (
    Mark(
        "Alerts",
        said(ALERTS, "alertname", "severity", "constraint"),
        "red",
        "{{said}}",
    ),
    Mark(
        "Restarts of engines",
        said(f"increase({RESTARTS}[$__rate_interval]) > 0", "target", "pod"),
        "purple",
        "{{said}} restarted",
    ),
    Mark(
        "Verdict changes",
        said(CHANGED, "model", "family", "cause"),
        "yellow",
        "now {{said}}",
    ),
)
