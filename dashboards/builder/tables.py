"""Tables: one row a thing, one column a query, sortable, with links to drill down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import prometheus as p

from builder.panels import PLAIN, About, Query, Step, begin, fixed, steps

SEEN = ("Time", "__name__")
DRILL = (
    "${datasource:queryparam}&${cluster:queryparam}&${namespace:queryparam}"
    "&${__url_time_range}"
)


def field(heading: str) -> str:
    """Returns what stands for the value under *heading* in the address of a link."""
    return f'${{__data.fields["{heading}"]:percentencode}}'


@dataclass(frozen=True, slots=True)
class Column:
    """A query whose values fill a column; it keeps the labels of its table's rows."""

    name: str
    expr: str
    unit: str = "short"
    colors: Sequence[Step] = ()
    decimals: int | None = None
    gauge: float | None = None  # where a bar in the cell ends
    said: Sequence[d.ValueMapping] = ()
    width: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """Where a click on a label's cell leads; fields are written by `field`."""

    label: str
    title: str
    url: str


def table_of(
    about: About,
    *,
    labels: Mapping[str, str],
    columns: Sequence[Column],
    sort_by: str = "",
    links: Sequence[Link] = (),
    widths: Mapping[str, int] | None = None,
    wrapped: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> d.Panel:
    """Returns a table: *labels* and their headings first, then a column a query.

    It is sorted by the column *sort_by*, largest first. *hidden* labels tell rows
    apart and are not shown; cells of *wrapped* headings take several lines.
    """
    queries = [
        Query(column.expr, now=True, format=p.PromQueryFormat.TABLE)
        for column in columns
    ]
    panel = begin(table.Panel(), about, queries)
    refs = [f"Value #{chr(ord('A') + i)}" for i in range(len(columns))]
    fields = refs if len(columns) > 1 else ["Value"]
    names = dict(zip(fields, (column.name for column in columns), strict=True))
    order = {name: i for i, name in enumerate([*labels, *names])}
    organize: dict[str, object] = {
        "excludeByName": dict.fromkeys((*SEEN, *hidden), True),
        "indexByName": order,
        "renameByName": {**labels, **names},
    }
    for kind, options in (("merge", {}), ("organize", organize)):
        panel = panel.with_transformation(
            d.DataTransformerConfig(id_val=kind, options=options)
        )
    for column in columns:
        panel = panel.override_by_name(column.name, _looks(column))
    for heading, width in (widths or {}).items():
        panel = panel.override_by_name(heading, [_custom("width", width)])
    for heading in wrapped:
        cell = _custom("cellOptions", {"type": "auto", "wrapText": True})
        panel = panel.override_by_name(heading, [cell])
    for link in links:
        shown: dict[str, object] = {
            "title": link.title,
            "url": link.url,
            "targetBlank": False,
        }
        found = [d.DynamicConfigValue("links", [shown])]
        panel = panel.override_by_name(labels[link.label], found)
    if sort_by:
        order_by = common.TableSortByFieldState().display_name(sort_by).desc(True)
        panel = panel.sort_by([order_by])
    return panel.cell_height(c.TableCellHeight.SM).show_header(True).build()


def _looks(column: Column) -> list[d.DynamicConfigValue]:
    found = [d.DynamicConfigValue("unit", column.unit)]
    if column.decimals is not None:
        found.append(d.DynamicConfigValue("decimals", column.decimals))
    if column.width:
        found.append(_custom("width", column.width))
    if column.said:
        found.append(d.DynamicConfigValue("mappings", list(column.said)))
    if column.colors:
        found.append(d.DynamicConfigValue("thresholds", steps(*column.colors).build()))
    if column.gauge is not None:
        found.append(d.DynamicConfigValue("min", 0))
        found.append(d.DynamicConfigValue("max", column.gauge))
        found.append(fixed(PLAIN))  # a long bar is not always a good one
        found.append(_custom("cellOptions", {"type": "gauge", "mode": "basic"}))
    elif column.colors or column.said:
        found.append(
            _custom("cellOptions", {"type": "color-background", "mode": "basic"})
        )
    return found


def _custom(name: str, value: object) -> d.DynamicConfigValue:
    return d.DynamicConfigValue(f"custom.{name}", value)
