"""Can the other dashboards be trusted: exporters, their sources, and the rules."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from builder.board import Board, Line, exporters
from builder.panels import BAD, GOOD, WARN, About, Query, series, tile, words
from builder.query import INSTANCE, SITE, grown, or_none, rate
from builder.tables import Column, table_of

NO_EXPORTER = "No exporter is scraped by this Prometheus"
SOURCE = "instance, pod, target, kind"


def _exporters() -> d.Panel:
    return tile(
        About(
            "Exporters",
            "goodput-exporters that Prometheus scrapes.",
            "As many as were deployed.",
            "Fewer: see Prometheus's targets page.",
            NO_EXPORTER,
        ),
        Query(f"count(goodput_build_info{{{INSTANCE}}})", "scraped"),
        unit="short",
    )


def _down() -> d.Panel:
    return tile(
        About(
            "Sources down",
            "Engines and GPU exporters whose last scrape by ours failed.",
            "0.",
            "See the table for which, and the reasons below.",
            NO_EXPORTER,
        ),
        Query(f"count(goodput_target_up{{{INSTANCE}}} == 0) or {_none()}", "down"),
        unit="short",
        colors=((None, GOOD), (1, BAD)),
    )


def _none() -> str:
    """Returns 0 where sources are known at all."""
    return f"0 * count(goodput_target_up{{{INSTANCE}}})"


def _rules() -> d.Panel:
    return tile(
        About(
            "Rules",
            "Whether this Prometheus evaluates the recordings of `goodput rules`.",
            "Loaded.",
            "Write them with goodput rules and load them: most panels show recordings.",
            "Not loaded",
        ),
        Query(
            f"clamp_max(count(slo_class:goodput_objective:max{{{SITE}}}), 1)", "rules"
        ),
        said=words((1, "Loaded", GOOD)),
        colors=((None, BAD),),
    )


def _reload() -> d.Panel:
    return tile(
        About(
            "Configuration",
            "Whether the last (re)load of each configuration worked; the worst.",
            "In use.",
            "goodput check --config.file names the fault; the old one is in use.",
            NO_EXPORTER,
        ),
        Query(f"min(goodput_config_last_reload_successful{{{INSTANCE}}})", "file"),
        said=words((0, "Refused", BAD), (1, "In use", GOOD)),
    )


def _state() -> d.Panel:
    return tile(
        About(
            "Counters on disk",
            "Whether counters were on disk before they were published; the worst.",
            "Written.",
            "Not written: the disk is full or read-only. No storage path: counters "
            "start at 0 after a restart.",
            "No storage path",
        ),
        Query(f"min(goodput_state_last_write_successful{{{INSTANCE}}})", "state"),
        said=words((0, "Not written", BAD), (1, "Written", GOOD)),
    )


def _sources() -> d.Panel:
    def of(metric: str) -> str:
        return f"max by ({SOURCE}) (goodput_target_{metric}{{{INSTANCE}}})"

    damaged = rate("goodput_target_damaged_lines_total", INSTANCE)
    return table_of(
        About(
            "Sources",
            "A row an engine or GPU exporter that ours scrapes.",
            "Up, seconds ago, in milliseconds, nothing damaged.",
            "Down: see the failures below. Damaged lines: a proxy in between, or a "
            "page that is too large.",
            NO_EXPORTER,
        ),
        labels={
            "target": "Source",
            "kind": "Kind",
            "instance": "Exporter",
            "pod": "Pod",
        },
        columns=[
            Column("Up", of("up"), said=words((0, "down", BAD), (1, "up", GOOD))),
            Column(
                "Last success ago",
                f"time() - {of('last_success_timestamp_seconds')}",
                "s",
                ((None, GOOD), (30, WARN), (300, BAD)),
            ),
            Column("Scrape takes", of("scrape_duration_seconds"), "s"),
            Column(
                "Damaged lines/s",
                f"sum by ({SOURCE}) ({damaged})",
                "short",
                ((None, GOOD), (0.001, WARN)),
            ),
        ],
        sort_by="Last success ago",
    )


def _failures() -> d.Panel:
    failed = rate("goodput_target_scrape_failures_total", INSTANCE)
    return series(
        About(
            "Failed scrapes by reason",
            "Scrapes of engines and GPU exporters that failed, a second.",
            "0.",
            "refused: not listening (a restart). timeout: hangs, or the API server is "
            "busy. tls, credentials: the configuration.",
            NO_EXPORTER,
        ),
        Query(
            or_none(
                f"topk(5, sum by (kind, reason) ({failed}))",
                "reason",
                f"goodput_target_up{{{INSTANCE}}}",
            ),
            "{{kind}} {{reason}}",
        ),
        unit="suffix: /s",
        least=0.1,
    )


def _resets() -> d.Panel:
    resets = grown("goodput_target_resets_total", INSTANCE)
    return series(
        About(
            "Counter resets",
            "At each step of the axis. restart: the process is new. series: some "
            "series only. other_process: a load balancer in between; nothing can be "
            "counted then.",
            "0 outside of rollouts.",
            "other_process: scrape pods, not a Service.",
            NO_EXPORTER,
        ),
        Query(f"sum by (reset) ({resets})", "{{reset}}"),
        unit="short",
        least=1.0,
    )


def _durations() -> d.Panel:
    taken = f"max by (kind) (goodput_target_scrape_duration_seconds{{{INSTANCE}}})"
    return series(
        About(
            "Scrapes of sources take",
            "The slowest source's last scrape.",
            "Milliseconds.",
            "Seconds: the engine's API server is short of CPU; its users wait as well.",
            NO_EXPORTER,
        ),
        Query(taken, "{{kind}}"),
        unit="s",
    )


def _dropped() -> d.Panel:
    dropped = grown("goodput_label_values_dropped_total", INSTANCE)
    missed = grown("goodput_sampler_missed_cycles_total", INSTANCE)
    return series(
        About(
            "Dropped labels, missed cycles",
            "At each step of the axis, series and requests that count under “other”, "
            "and samples that did not start since the one before still ran.",
            "0.",
            "Raise limits in the configuration; more CPU, or a longer interval.",
            NO_EXPORTER,
        ),
        Query(
            or_none(
                f"sum by (label) ({dropped})",
                "label",
                f"goodput_build_info{{{INSTANCE}}}",
            ),
            "dropped: {{label}}",
        ),
        Query(f"sum({missed})", "missed cycles"),
        unit="short",
        least=1.0,
    )


def _ours(expr: str) -> str:
    """Returns *expr* of our own processes: others have the same metrics."""
    return f"{expr} and on (instance, job) goodput_build_info{{{INSTANCE}}}"


def _cpu() -> d.Panel:
    return series(
        About(
            "CPU of exporters",
            "Cores that each exporter uses.",
            "A few percent of a core with one engine.",
            "Many engines from one process: a longer interval, or more exporters.",
            NO_EXPORTER,
        ),
        Query(
            f"topk(10, {_ours(rate('process_cpu_seconds_total', INSTANCE))})",
            "{{instance}}",
        ),
        unit="percentunit",
    )


def _memory() -> d.Panel:
    resident = f"process_resident_memory_bytes{{{INSTANCE}}}"
    return series(
        About(
            "Memory of exporters",
            "Resident memory of each exporter.",
            "Below 64 MiB with one engine, and flat.",
            "Growing: report it, with the status page.",
            NO_EXPORTER,
        ),
        Query(f"topk(10, {_ours(resident)})", "{{instance}}"),
        unit="bytes",
    )


BOARD = Board(
    uid="llm-goodput-health",
    title="LLM Goodput: exporter health",
    description="Can the other dashboards be trusted: exporters, their sources, and "
    "the rules.",
    variables=(exporters(),),
    by_model=False,
    lines=(
        Line(
            4,
            (
                (4, _exporters()),
                (5, _down()),
                (5, _rules()),
                (5, _reload()),
                (5, _state()),
            ),
        ),
        Line(7, ((24, _sources()),)),
        Line(8, ((8, _failures()), (8, _resets()), (8, _durations()))),
        Line(8, ((8, _dropped()), (8, _cpu()), (8, _memory()))),
    ),
)
