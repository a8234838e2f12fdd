"""Writes what follows from the code: pages of this folder, and tables in others.

Run it from anywhere; it takes everything from the installed package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from click import Command, Context

from analyzer.catalogue import ENGINE_STATES, METRICS, SCRAPE_FAILURES, Metric
from analyzer.cli import main as goodput_main
from analyzer.config import parse_config
from analyzer.engines.capabilities import CAPABILITIES
from analyzer.presets import PRESETS
from analyzer.slo import CRITERIA, STAGES
from analyzer.snapshot import Reset
from analyzer.strict import format_duration
from exporter.cli import main as exporter_main

WIDTH = 90

INTRODUCTION = """\
# Metrics

<!-- Written by docs/generate.py from analyzer/catalogue.py; do not edit. -->

What `goodput-exporter` serves at `/metrics`, in the text format and in OpenMetrics.
Units are base units. A metric without a value is absent, never 0: an engine that does
not tell something has no series for it. Counters of a configured class, target or
reason exist at 0 before the first event, and with `--storage.path` they go on where
they were after a restart. Beside these there are the usual `process_*` metrics.

Good events are published as counters, so rates, ratios and burn rates are PromQL's
work over any window. The share that certainly met a criterion:

```promql
sum by (model, slo_class, criterion) (
  rate(goodput_engine_criterion_good_events_lower_total[1h])
)
/
sum by (model, slo_class, criterion) (
  rate(goodput_engine_criterion_events_total[1h])
)
```

The engine's metrics tell how many requests met each criterion, not which request met
which. So the share of requests that met all n criteria is a bound: at least
max(0, Σ p − (n − 1)) with each criterion's share p from its lower counter, at most the
smallest p from the upper counters. Take windows much longer than a request, since
TTFT counts at the first token and the others at the end.
"""

# A metric belongs to the first section whose prefix its name has.
SECTIONS: Mapping[str, str] = {
    "goodput_slo_": "The objectives of the configuration",
    "goodput_engine_": "Engines",
    "goodput_target_": "Targets",
    "goodput_": "The exporter itself",
}


def _one_of(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


LABELS: Mapping[str, str] = {
    "criterion": f"The latency condition: {_one_of(CRITERIA)}.",
    "kind": "What the target is: `engine`.",
    "label": "The label whose limit of values was reached.",
    "model": "The served name of the model; aliases and adapters count under it. "
    "Names beyond the limit are `other`.",
    "percentile": "The percentile of the configuration, such as `p95`.",
    "python": "The version of Python.",
    "rank": "The data-parallel rank, `0` when there is one.",
    "reason": "Why, as the metric's help says. Of scrape failures: "
    f"{_one_of(SCRAPE_FAILURES)}.",
    "reset": "How far a counter reset went: "
    f"{_one_of(reset.value for reset in Reset if reset is not Reset.NONE)}.",
    "slo_class": "The name of the SLO class.",
    "source": "Where prompt tokens came from, in the engine's own words.",
    "stage": f"The part of the latency budget: {_one_of(STAGES)}.",
    "state": f"The engine's state: {_one_of(ENGINE_STATES)}.",
    "target": "The configured name of the source.",
    "version": "The version of the exporter.",
}


def metrics_page(metrics: Iterable[Metric] = METRICS) -> str:
    """Returns docs/metrics.md. Raises KeyError for a label that LABELS lacks."""
    sections: dict[str, list[Metric]] = {prefix: [] for prefix in SECTIONS}
    used: set[str] = set()
    for metric in metrics:
        prefix = next(p for p in SECTIONS if metric.name.startswith(p))
        sections[prefix].append(metric)
        used.update(metric.labels)
    lines = [INTRODUCTION]
    for prefix, title in SECTIONS.items():
        lines += [f"## {title}", "", *_table(sections[prefix]), ""]
    lines += ["## Labels", "", "| label | meaning |", "| --- | --- |"]
    lines += [f"| `{name}` | {LABELS[name]} |" for name in sorted(used)]
    return "\n".join(lines) + "\n"


def _table(metrics: Iterable[Metric]) -> list[str]:
    return [
        "| metric | type | labels | meaning |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{metric.name}` | {metric.kind} | {_one_of(metric.labels)} "
            f"| {metric.documentation.replace('|', '&#124;')} |"
            for metric in metrics
        ),
    ]


COMMANDS_INTRODUCTION = """\
# Commands

<!-- Written by docs/generate.py from the programs' own help; do not edit. -->
"""


def commands_page() -> str:
    """Returns docs/commands.md: the help of both programs."""
    lines = [COMMANDS_INTRODUCTION]
    lines += _help("goodput-exporter", exporter_main)
    lines += _help("goodput", goodput_main)
    for name, command in sorted(goodput_main.commands.items()):
        lines += _help(f"goodput {name}", command)
    return "\n".join(lines) + "\n"


def _help(title: str, command: Command) -> list[str]:
    context = Context(command, info_name=title, terminal_width=WIDTH)
    return [f"## `{title}`", "", "```text", command.get_help(context), "```", ""]


def presets_table() -> str:
    """Returns the rows of the presets."""
    rows = []
    for name, preset in PRESETS.items():
        (slo_class,) = parse_config(f"slo_classes: [{{preset: {name}}}]").slo_classes
        good = ", ".join(
            f"{criterion} ≤ {format_duration(threshold.seconds)}"
            for criterion, threshold in slo_class.good.items()
        )
        rows.append(f"| `{name}` | {good} | {slo_class.objective} | {preset.source} |")
    return "\n".join(rows)


def capabilities_table() -> str:
    """Returns the rows of the signals."""
    return "\n".join(
        f"| `{c.signal}` | {c.purpose} | {c.needs} |" for c in CAPABILITIES
    )


# Tables in pages written by hand: they follow a comment of this name.
TABLES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "presets": ("configuration.md", presets_table),
    "capabilities": ("engines.md", capabilities_table),
}


def with_table(text: str, name: str) -> str:
    """Returns a page with its table of that name written anew."""
    _, table = TABLES[name]
    pattern = rf"((?:\|[^\n]*\n){{2}})(?:\|[^\n]*\n)*<!-- {name} -->"
    found, count = re.subn(
        pattern, lambda m: f"{m[1]}{table()}\n<!-- {name} -->", text, count=1
    )
    if count != 1:
        raise ValueError(f"no table before <!-- {name} -->")
    return found


def main() -> None:
    """Writes the pages beside this file."""
    folder = Path(__file__).parent
    (folder / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    for name, (file, _) in TABLES.items():
        page = folder / file
        text = with_table(page.read_text(encoding="utf-8"), name)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
