"""Mistakes of a dashboard that a machine can find, as sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any

import promql_parser as promql
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

Board = Mapping[str, Any]
Node = Any  # of promql's tree: its classes share no base
Json = Any
RATE_SECONDS = 7919.0
# What Grafana fills in by itself; the parser needs values.
KNOWN = {
    "__rate_interval": f"{RATE_SECONDS:.0f}s",
    "__range": "86399s",
    "__interval_ms": "6421000",
    "__to": "1594671549254",
}
VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?:[.:][^}]*)?\}")
UNITS = {"none", "short", "percentunit", "s", "reqps", "bytes", "Bps", "watt", "hertz"}
WORDED = {"state-timeline", "text", "row"}
RATES = {"rate", "increase", "changes", "resets"}
COUNTERS = re.compile(r"(_total|_bucket|_sum|_count)$")
AGGREGATES_OF_QUANTILES = {"avg", "sum"}
OURS = {"titleFormat"}  # of annotations: the model of the SDK knows no data source


@dataclass(frozen=True, slots=True)
class Lint:
    """Finds the mistakes of one board; *metrics* are the names that exist."""

    board: Board
    metrics: frozenset[str]

    def findings(self) -> list[str]:
        """Returns every mistake, with where it is."""
        return [
            *self._heading(),
            *self._variables(),
            *self._unused(),
            *(
                f"{panel.get('title')}: {finding}"
                for panel in self.board["panels"]
                for finding in self._panel(panel)
            ),
            *grid(self.board["panels"]),
            *(f"mark {text}" for text in self._marks()),
            *(f"{key}: unknown to Grafana" for key in unknown_keys(self.board)),
        ]

    def _heading(self) -> Iterator[str]:
        for key in ("uid", "title", "description", "tags", "schemaVersion", "time"):
            if not self.board.get(key):
                yield f"has no {key}"
        if self.board.get("editable") is not False:
            yield "can be edited, and would differ from what is shipped"
        if not any(link.get("keepTime") for link in self.board.get("links", ())):
            yield "has no links that keep the time"

    @property
    def _names(self) -> set[str]:
        return {one["name"] for one in self.board["templating"]["list"]} | {*KNOWN}

    def _unused(self) -> Iterator[str]:
        text = json.dumps(self.board["panels"])
        used = {match[1] or match[2] for match in VARIABLE.finditer(text)}
        yield from (f"${name} is not used" for name in self._names - used - {*KNOWN})

    def _variables(self) -> Iterator[str]:
        first, *others = self.board["templating"]["list"]
        if (first["type"], first["name"]) != ("datasource", "datasource"):
            yield "the first variable is not the data source"
        for variable in others:
            if variable["type"] != "query":
                continue
            where = f"variable {variable['name']}"
            if variable["refresh"] != 2:
                yield f"{where}: does not follow the time range"
            if variable["datasource"]["uid"] != "${datasource}":
                yield f"{where}: asks another data source"
            query = variable["query"]["query"]
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", query, re.DOTALL)
            if match is None:
                yield f"{where}: no label_values with a metric: {query}"
            else:
                found = self._query(match[1], variable_only=True)
                yield from (f"{where}: {text}" for text in found)

    def _marks(self) -> Iterator[str]:
        for mark in self.board["annotations"]["list"]:
            for text in self._query(mark["expr"]):
                yield f"{mark['name']}: {text}"

    def _panel(self, panel: Board) -> Iterator[str]:
        kind = panel["type"]
        if not panel.get("title"):
            yield "has no title"
        if kind in ("row", "text"):
            return
        for word in ("**Good:**", "**Otherwise:**"):
            if word not in panel.get("description", ""):
                yield f"the description lacks {word}"
        if panel["datasource"]["uid"] != "${datasource}":
            yield "asks another data source"
        defaults = panel["fieldConfig"]["defaults"]
        if not defaults.get("noValue"):
            yield "does not say why there is no data"
        yield from self._units(panel)
        targets = panel.get("targets", [])
        if not targets:
            yield "asks nothing"
        refs = [target["refId"] for target in targets]
        if len({*refs}) != len(refs):
            yield f"repeats a reference: {refs}"
        for target in targets:
            faults = [*self._query(target["expr"])]
            yield from faults or legends(target)
        yield from stacked(panel)
        yield from shares(panel)

    def _units(self, panel: Board) -> Iterator[str]:
        if panel["type"] in WORDED | {"table"}:
            return
        unit = panel["fieldConfig"]["defaults"].get("unit", "")
        if unit not in UNITS and not unit.startswith(("si:", "suffix:")):
            yield f"has no unit that we use: {unit!r}"

    def _query(self, expr: str, *, variable_only: bool = False) -> Iterator[str]:
        for match in VARIABLE.finditer(expr):
            if (match[1] or match[2]) not in self._names:
                yield f"{match[0]} is no variable: {expr}"
        try:
            tree = promql.parse(VARIABLE.sub(_filled, expr))
        except ValueError as error:
            yield f"{error}: {expr}"
            return
        if re.search(r"or\s+(on\s*\(\)\s*)?vector\(0\)", expr):
            yield f"turns missing into 0: {expr}"
        for node, parents in walk(tree):
            yield from self._node(node, parents, counters=not variable_only)

    def _node(
        self, node: Node, parents: tuple[Node, ...], *, counters: bool
    ) -> Iterator[str]:
        calls = [p.func.name for p in parents if isinstance(p, promql.Call)]
        inside = calls[-1] if calls else ""
        if isinstance(node, promql.VectorSelector):
            if node.name and node.name not in self.metrics:
                yield f"{node.name} is in no catalogue and no rule"
            if (
                counters
                and (node.name or "").endswith("_total")
                and inside not in RATES
            ):
                yield f"{node.name}: a counter without rate"
            if (node.name or "").endswith("_seconds_sum") and not any(
                isinstance(p, promql.BinaryExpr) and str(p.op) == "/" for p in parents
            ):
                yield f"{node.name}: a sum that is divided by no count"
        subquery = any(isinstance(p, promql.SubqueryExpr) for p in parents)
        ranged = isinstance(node, promql.MatrixSelector) and inside == "rate"
        # A window in a subquery is part of what the query means.
        if ranged and not subquery and node.range.total_seconds() != RATE_SECONDS:
            yield f"a rate that is not over $__rate_interval: {node}"
        if isinstance(node, promql.Call) and node.func.name == "histogram_quantile":
            yield from quantile(node, parents)
        yield from undivided(node)
        yield from misread(node, inside)


def grid(panels: list[Board]) -> Iterator[str]:
    """Yields panels that repeat a number, leave the grid, or lie over another."""
    numbers = [panel["id"] for panel in panels]
    if len({*numbers}) != len(numbers) or not all(numbers):
        yield f"ids repeat or are missing: {numbers}"
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24 or min(place["w"], place["h"]) < 1:
            yield f"{panel['title']}: leaves the grid: {place}"
    for one, other in combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        if not beside and not above:
            yield f"{one['title']} lies over {other['title']}"


def quantile(node: Node, parents: tuple[Node, ...]) -> Iterator[str]:
    """Yields what is wrong about a quantile: buckets not summed, or itself averaged."""
    argument = node.args[1]
    summed = isinstance(argument, promql.AggregateExpr) and argument.modifier
    labels = summed.labels if summed else []
    if "le" not in labels:
        yield f"a quantile of buckets that are not summed by le: {node}"
    above = [str(p.op) for p in parents if isinstance(p, promql.AggregateExpr)]
    if AGGREGATES_OF_QUANTILES & set(above):
        yield f"a mean of quantiles: {node}"


def undivided(node: Node) -> Iterator[str]:
    """Yields a ratio that is not a number, or endless, when there is no traffic.

    A count of series is never 0, and a scalar of no series is not a number.
    """
    if not isinstance(node, promql.BinaryExpr) or str(node.op) != "/":
        return
    below = node.rhs
    while isinstance(below, promql.ParenExpr):
        below = below.expr
    counted = isinstance(below, promql.AggregateExpr) and str(below.op) == "count"
    guarded = isinstance(below, promql.BinaryExpr) and str(below.op) in (">", "*", "/")
    scalar = isinstance(below, promql.Call) and below.func.name == "scalar"
    if not (isinstance(below, promql.NumberLiteral) or counted or guarded or scalar):
        yield f"a ratio that may divide by 0: {node}"


def misread(node: Node, inside: str) -> Iterator[str]:
    """Yields a rate of what is no counter, and a mean that hides the fullest cache."""
    if isinstance(node, promql.MatrixSelector) and inside in RATES:
        name = node.vector_selector.name or ""
        if not COUNTERS.search(name):
            yield f"{inside} of {name}, which is no counter"
    mean = isinstance(node, promql.AggregateExpr) and str(node.op) == "avg"
    if mean and "kv_cache" in str(node):
        yield f"a mean hides the fullest engine: {node}"


def stacked(panel: Board) -> Iterator[str]:
    """Yields that percentiles are stacked, which do not add up."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    adds_up = custom.get("stacking", {}).get("mode") == "normal"
    exprs = [target["expr"] for target in panel.get("targets", ())]
    if adds_up and any("histogram_quantile" in expr for expr in exprs):
        yield "percentiles are stacked"


def shares(panel: Board) -> Iterator[str]:
    """Yields limits of a share that seem to be percents."""
    defaults = panel["fieldConfig"]["defaults"]
    limits = [step["value"] for step in defaults.get("thresholds", {}).get("steps", ())]
    if defaults.get("unit") == "percentunit" and any((v or 0) > 5 for v in limits):
        yield f"limits of a share, of which 1 is all: {limits}"


def legends(target: Board) -> Iterator[str]:
    """Yields labels of a legend that the query has aggregated away."""
    tree = promql.parse(VARIABLE.sub(_filled, target["expr"]))
    named = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat") or ""))
    if isinstance(tree, promql.AggregateExpr) and str(tree.op) not in (
        "topk",
        "bottomk",
    ):
        kept = set(tree.modifier.labels) if tree.modifier else set()
        for label in sorted(named - kept):
            yield f"the legend names {label}, which the query drops"


def _filled(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    return KNOWN.get(name, name if name != "price" else "1")


def walk(
    node: Node, parents: tuple[Node, ...] = ()
) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Yields every node of a query with those above it."""
    yield node, parents
    for key in ("lhs", "rhs", "expr", "param", "vector_selector", "args"):
        below = getattr(node, key, None)
        for child in below if isinstance(below, list) else [below]:
            if child is not None and not isinstance(child, str | int | float):
                yield from walk(child, (*parents, node))


def unknown_keys(board: Board) -> Iterator[str]:
    """Yields keys that Grafana's own model loses: misspelt, or of another version."""
    plugins.register_default_plugins()
    model = Dashboard.from_json({**_copied(board)})
    kept = _copied(JSONEncoder().encode(model))
    yield from _lost(board, kept, "")


def _copied(value: Json) -> Json:
    return json.loads(value if isinstance(value, str) else json.dumps(value))


def _lost(before: Json, after: Json, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from _lost(value, after[key], f"{path}.{key}")
            elif key not in OURS:
                yield f"{path}.{key}"
    elif isinstance(before, list) and isinstance(after, list):
        for index, one, other in zip(count(), before, after):
            yield from _lost(one, other, f"{path}[{index}]")
