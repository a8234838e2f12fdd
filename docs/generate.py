"""Writes what follows from the code: pages of this folder, and tables in others.

Run it from anywhere; it takes everything from the installed package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from click import Command, Context

from analyzer.catalogue import (
    DISCOVERY_FAILURES,
    ENGINE_STATES,
    GPU_SCRAPE_FAILURES,
    METRICS,
    SCRAPE_FAILURES,
)
from analyzer.cli import main as goodput_main
from analyzer.config import parse_config
from analyzer.config_gateways import FORMATS, GatewaySource
from analyzer.diagnosis.causes import TABLE as CAUSE_TABLE
from analyzer.diagnosis.thresholds import TABLE as THRESHOLD_TABLE
from analyzer.engines.capabilities import CAPABILITIES
from analyzer.gateways.detect import format_for
from analyzer.gateways.record import LINE_PROBLEMS
from analyzer.gpus.capabilities import NEEDS
from analyzer.gpus.reading import THROTTLE_REASONS
from analyzer.metric import Metric
from analyzer.presets import PRESETS
from analyzer.requests_total import EXCLUSIONS
from analyzer.slo import CRITERIA, STAGES
from analyzer.snapshot import Reset
from analyzer.strict import format_duration
from analyzer.verdict import Family
from exporter.cli import main as exporter_main
from exporter.tail_batch import LOST_REASONS

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
work over any window. The share of good requests among those that can be judged, exact
where a request log tells:

```promql
sum by (model, slo_class) (rate(goodput_good_requests_total[1h]))
/
sum by (model, slo_class) (
  rate(goodput_good_requests_total[1h]) + rate(goodput_bad_requests_total[1h])
)
```

Without a log the engine's metrics give bounds. The share that certainly met a
criterion:

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
    "goodput_requests_": "Requests, exactly: from logs",
    "goodput_good_": "Requests, exactly: from logs",
    "goodput_bad_": "Requests, exactly: from logs",
    "goodput_unevaluable_": "Requests, exactly: from logs",
    "goodput_criterion_": "Requests, exactly: from logs",
    "goodput_excluded_": "Requests, exactly: from logs",
    "goodput_tokens_": "Requests, exactly: from logs",
    "goodput_request_": "Requests, exactly: from logs",
    "goodput_source_": "Requests, exactly: from logs",
    "goodput_log_": "Request logs",
    "goodput_engine_": "Engines",
    "goodput_constraint": "What binds",
    "goodput_kv_": "What binds",
    "goodput_gpu_": "GPUs",
    "goodput_target_": "Targets",
    "goodput_discovery_": "Targets",
    "goodput_": "The exporter itself",
}


def _one_of(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


LABELS: Mapping[str, str] = {
    "criterion": f"The latency condition: {_one_of(CRITERIA)}. Of misses also `error`, "
    "the request failed, and `abort`, its client left after a threshold had passed.",
    "cause": "The cause within its family, see [diagnosis.md](diagnosis.md); empty for "
    "`unknown`.",
    "family": f"What kind of thing binds: {_one_of(Family)}.",
    "entry": "The name of an entry of `engines`, which may stand for many targets.",
    "gateway": "The configured name of the request log.",
    "gpu": "The exporter's number of the GPU on its host.",
    "gpu_instance": "The MIG instance, empty for a whole GPU. Figures that only the "
    "board has (power, clocks, links) stand under the empty one, once.",
    "hostname": "The host, as the GPU exporter calls it.",
    "kind": "What the target is: `engine` or `gpu`.",
    "label": "The label whose limit of values was reached.",
    "model": "The served name of the model; aliases and adapters count under it. "
    "Names beyond the limit are `other`.",
    "model_name": "The product, such as `NVIDIA H100 80GB HBM3`.",
    "namespace": "The Kubernetes namespace of the pod that has the GPU.",
    "node": "The node that the target runs on, when discovery tells it.",
    "percentile": "The percentile of the configuration, such as `p95`.",
    "pci_bus_id": "The GPU's PCI bus id.",
    "pod": "The pod that the target runs in, when discovery tells it; of a GPU the pod "
    "that has it.",
    "python": "The version of Python.",
    "rank": "The data-parallel rank, `0` when there is one.",
    "reason": "Why, as the metric's help says. Of scrape failures: "
    f"{_one_of(SCRAPE_FAILURES)}; of GPU exporters also "
    f"{_one_of(r for r in GPU_SCRAPE_FAILURES if r not in SCRAPE_FAILURES)}. Of clocks "
    f"held down: {_one_of(THROTTLE_REASONS)}. Of excluded requests: "
    f"{_one_of(EXCLUSIONS)}. Of lines that gave no record: "
    f"{_one_of(LINE_PROBLEMS)}. Of losses of a log: {_one_of(LOST_REASONS)}. Of "
    f"failures of discovery: {_one_of(DISCOVERY_FAILURES)}.",
    "reset": "How far a counter reset went: "
    f"{_one_of(reset.value for reset in Reset if reset is not Reset.NONE)}.",
    "slo_class": "The name of the SLO class.",
    "source": "Where prompt tokens came from, in the engine's own words.",
    "stage": f"The part of the latency budget: {_one_of(STAGES)}.",
    "state": f"The engine's state: {_one_of(ENGINE_STATES)}.",
    "target": "The configured name of the source; of a discovered one the name of its "
    "entry, a slash, and its pod or address.",
    "url": "The address of the target's page.",
    "uuid": "The GPU's UUID; of a MIG instance that of its board.",
    "version": "The version of the exporter.",
}


def metrics_page(metrics: Iterable[Metric] = METRICS) -> str:
    """Returns docs/metrics.md. Raises KeyError for a label that LABELS lacks."""
    sections: dict[str, list[Metric]] = {title: [] for title in SECTIONS.values()}
    used: set[str] = set()
    for metric in metrics:
        prefix = next(p for p in SECTIONS if metric.name.startswith(p))
        sections[SECTIONS[prefix]].append(metric)
        used.update(metric.labels)
    lines = [INTRODUCTION]
    for title, listed in sections.items():
        lines += [f"## {title}", "", *_table(listed), ""]
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


GATEWAYS_INTRODUCTION = """\
# Request logs

<!-- Written by docs/generate.py from the formats; do not edit. -->

A request log gives exact goodput: each request is judged by its class, one by one.
`gateways` in [configuration.md](configuration.md) says where a log is; with
`format: auto` the first line that exactly one format recognises decides. Lines may be
plain, or framed by a container runtime (CRI) or Docker.
[gateway-setup.md](gateway-setup.md) tells how to set each gateway up, which fields are
read, and how right the verdicts are.

A request is **bad** if it failed (5xx, 408, 429, cut, an error in its stream) or missed
a criterion that is known; else **unevaluable** if a criterion of its class cannot be
known; else **good**. A value that a log does not hold is never guessed: a format
without a first-token time makes requests unevaluable for TTFT. A client that left is
bad if a threshold had passed by then, and excluded before that; the caller's own 4xx
and other routes are excluded. `policy_statuses` lists statuses by which a gateway
enforces a policy: they are excluded as well.

Whether a server sends its headers before the first token (vLLM does, SGLang holds them
back) is learnt per route from answers that tell both times; only then is a header time
taken for TTFT.

Of a container's log both streams are read, as some programs write their access log to
the standard error (Caddy does by default). A line of the standard error that is no
request is a message of the program: it counts as `stderr` in
`goodput_log_parse_failures_total`, not as an unreadable request.

Each line counts once however often the process is killed, with `--storage.path`:
totals, position and what was read and waits for a later line are written together.
Datagrams are the exception: what nobody had counted is gone with the process.
"""


def gateways_page() -> str:
    """Returns docs/gateways.md: what each format can tell, and what it never can."""
    lines = [GATEWAYS_INTRODUCTION, "## What each format can evaluate at best", ""]
    names = [name for name in FORMATS if name not in ("auto", "custom")]
    formats = [format_for(GatewaySource("log", format=name)) for name in names]
    lines += [
        f"| format | {' | '.join(CRITERIA)} |",
        f"| --- |{' --- |' * len(CRITERIA)}",
        *(
            f"| `{f.name}` | "
            + " | ".join("yes" if c in f.criteria else "–" for c in CRITERIA)
            + " |"
            for f in formats
            if f
        ),
        "| `custom` | as its fields say | | | |",
        "",
        "## What each format can never tell",
        "",
    ]
    for found in formats:
        if found:
            lines += [f"**{found.name}**", "", *(f"- {b}" for b in found.blind), ""]
    return "\n".join(lines).rstrip() + "\n"


DIAGNOSIS_INTRODUCTION = """\
# What binds

<!-- Written by docs/generate.py from analyzer/diagnosis/; do not edit. -->

Every rank of every engine has one verdict at any time: a family, a cause, how sure it
is (0 to 1), the evidence with its thresholds, what is missing to say more, what it
might be instead, and what to change. It is on the status page, in `/api/v1/status`, in
`goodput replay` and `goodput diagnose`, and as `goodput_constraint` and
`goodput_constraint_seconds_total` in Prometheus. All of them come from one flow, so
they say the same of the same scrapes.

## How it is found

**Only under pressure.** A capacity family is named when requests go on waiting, when a
criterion is missed, or when more requests bring hardly any more tokens. Otherwise the
family is `none`, with the nearest limits as evidence.

**Would turning the knob help?** A queue says that something is short, not what. Two
tests tell: the KV cache is a *stock* and prefill is a *rate*.

- A step takes a *fixed* time (reading weights, launching kernels) and more for each
  sequence and prompt token in it. What admits more (a higher `max_num_seqs`, a larger
  `max_num_batched_tokens`, a larger cache) shares the fixed time among more. So the
  *fixed share* f of a step is what they can gain: doubling the batch brings
  1/(1 − f/2) times the throughput, and tokens/s grow by f for each percent of batch.
- The fixed share is learnt from the engine itself: the steps of the smallest batches
  seen, and the slope from there to the present ones. Where no smaller batch was seen,
  the shortest present steps and the number of tokens a step bound it from above. It is
  forgotten when the engine restarts.
- If the fixed share is small, the step's content is the limit: prompts or output
  tokens, whichever is most of the work. If it is not, something keeps the batch small:
  the cache if it is full, else the budget of tokens if steps are full, else the cap.

**The engine decides, GPUs corroborate.** GPU data may be 40 s old and are means over
prefill and decode. They tell bandwidth from arithmetic in decode, raise or lower
confidence, and never make a verdict by themselves.

**Request logs speak for what is outside the engine.** Where a log of a gateway is read,
its stages of the last 20 seconds are evidence for every rank of the model: `gateway` is
named when requests are late by the gateway's clock and in time by the engine's. Without
a log nothing changes, and nothing is missing.

**Named within ten seconds, without flapping.** A verdict gives way to one that holds
for a few seconds; shares must fall back well behind their threshold before it goes.

**No evidence, no verdict.** A signal that the engine does not print widens the verdict
to candidates, or to `unknown` with what is missing.

The rules were checked by counterfactuals: in a simulator of vLLM's scheduler each knob
was doubled, and the verdict compared with the one that raised throughput.
"""


def diagnosis_page() -> str:
    """Returns docs/diagnosis.md: every cause and every threshold, from the code."""
    lines = [DIAGNOSIS_INTRODUCTION, "## Causes", ""]
    for known in CAUSE_TABLE:
        used = ", ".join(f"[`{t.name}`](#thresholds)" for t in known.thresholds)
        lines += [
            f"### {known.family} / {known.cause}",
            "",
            known.mechanism,
            "",
            f"- **Named when**: {known.rule}",
            *([f"- **Thresholds**: {used}"] if used else []),
            f"- **It would be wrong if**: {known.refuted}",
            f"- **Knobs**: {known.knobs}",
            f"- **Verify by**: {known.verify}",
            "",
        ]
    lines += [
        "## Thresholds",
        "",
        "| threshold | value | unit | why | source |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| `{t.name}` | {t.value:g} | {t.unit} | {t.reason} | {t.source} |"
            for t in THRESHOLD_TABLE
        ),
        "",
        UNKNOWN_SECTION,
    ]
    return "\n".join(lines)


UNKNOWN_SECTION = """\
## unknown

The evidence is not sufficient: `missing` names the signals that would settle it, and
`candidates` what it may be. An engine that has not answered yet, a rank's first page, a
batch that was never small, and an engine without gauges of its queue are examples.

## What it says beside the verdict

- `goodput_kv_cache_exhaustion_seconds`, and on the status page what fills the cache:
  more requests or longer ones. A cache that is high and steady has no forecast.
- The index of dispersion of arrivals over somewhat more than a minute:
  1 is chance, above it requests come in bursts.
- Preemptions per second, and the rank with the fullest cache of a model: the highest
  counts, not the mean.
"""

COMMANDS_INTRODUCTION = """\
# Commands

<!-- Written by docs/generate.py from the programs' own help; do not edit. -->
"""


def commands_page() -> str:
    """Returns docs/commands.md: the help of both programs."""
    lines = [COMMANDS_INTRODUCTION]
    lines += _help("goodput-exporter", exporter_main)
    lines += _help("goodput", goodput_main)
    context = Context(goodput_main)
    for name in goodput_main.list_commands(context):
        command = goodput_main.get_command(context, name)
        if command is not None:
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


def gpu_signals_table() -> str:
    """Returns the rows of the GPU signals."""
    rows = []
    for need in NEEDS:
        before, since = map(_one_of, (need.before, need.since))
        kind = "Profiling." if need.profiling else ""
        default = "yes" if need.default else "no"
        rows.append(
            f"| `{need.signal}` | {need.purpose} | {before} | {since} | {default} "
            f"| {' '.join(filter(None, (kind, need.note)))} |"
        )
    return "\n".join(rows)


# Tables in pages written by hand: they follow a comment of this name.
TABLES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "presets": ("configuration.md", presets_table),
    "capabilities": ("engines.md", capabilities_table),
    "gpu-signals": ("gpus.md", gpu_signals_table),
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
    (folder / "gateways.md").write_text(gateways_page(), encoding="utf-8")
    (folder / "diagnosis.md").write_text(diagnosis_page(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    for name, (file, _) in TABLES.items():
        page = folder / file
        text = with_table(page.read_text(encoding="utf-8"), name)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
