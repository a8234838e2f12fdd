"""The status page: what is wrong, how many requests were good, what each engine does.

Plain HTML with one inline style sheet. It loads nothing and runs no script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from exporter import page_gpus, page_logs, page_parts, page_slo
from exporter.log_state import LogState
from exporter.page_gpus import Exporter
from exporter.page_logs import Log
from exporter.page_slo import Judgement, Outcome
from exporter.page_style import STYLE
from exporter.page_target import Target, state_of, targets_of
from exporter.page_text import NNBSP, Markup, count, date, join, name, plural, tag

PRODUCT = "llm-goodput"
NAMED_ALONE = 3  # targets in the same trouble that get a line each
MAX_NAMED = 8


def render(
    document: dict[str, Any],
    *,
    version: str,
    at: float,
    refresh_seconds: int = 5,
    logs: Iterable[LogState] = (),
    config_error: str = "",
    state_note: str = "",
    telemetry_path: str = "/metrics",
    switch_url: str = "",
) -> bytes:
    """Returns the page for a document with pictures, as of *at* (Unix seconds).

    *logs* says how the request logs fare, *config_error* why the last reload failed,
    *state_note* what is to be known of stored state. With *refresh_seconds* 0 the page
    stays as it is; *switch_url* leads from a page that refreshes to one that does not,
    and back.
    """
    targets = targets_of(document)
    request_logs = page_logs.logs_of(document, logs)
    gpus = page_gpus.exporters_of(document)
    judgements = page_slo.judgements_of(document)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width,initial-scale=1"),
        tag("meta", http_equiv="refresh", content=str(refresh_seconds))
        if refresh_seconds
        else "",
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{_title(targets, request_logs, gpus, judgements)} · {PRODUCT}"),
        tag("style", Markup(STYLE)),
    )
    main = tag(
        "main",
        _notices(config_error, state_note),
        _troubles(targets, request_logs, gpus),
        page_slo.section(document, judgements),
        page_parts.section(targets, at),
        page_logs.section(request_logs, at),
        page_gpus.section(gpus, at),
    )
    header = tag(
        "header",
        tag("h1", PRODUCT),
        tag("span", version),
        tag("span", "as of ", date(at), " · ", _refresh(refresh_seconds, switch_url)),
        tag(
            "nav",
            tag("a", "Metrics", href=telemetry_path),
            tag("a", "Status as JSON", href="/api/v1/status"),
            aria_label="Machine-readable",
        ),
    )
    page = tag("html", head, tag("body", header, main), lang="en")
    return f"<!DOCTYPE html>\n{page}\n".encode()


def _refresh(refresh_seconds: int, switch_url: str) -> Markup:
    if refresh_seconds:
        text, other = f"refreshes every {refresh_seconds}{NNBSP}s", "pause"
    else:
        text, other = "does not refresh", "resume"
    link = [", ", tag("a", other, href=switch_url)] if switch_url else []
    return join([text, *link])


def _notices(config_error: str, state_note: str) -> Markup:
    parts: list[Markup] = []
    if config_error:
        failed = "The last reload failed; the configuration before it is in force: "
        parts.append(tag("p", tag("strong", failed), config_error, class_="bad"))
    if state_note:
        parts.append(tag("p", tag("strong", "State: "), state_note))
    if not parts:
        return Markup()
    return tag("section", *parts, class_="notices", aria_label="Notices")


def _troubles(
    targets: Sequence[Target], logs: Sequence[Log], gpus: Sequence[Exporter]
) -> Markup:
    """Returns what to look at, or one line that says that all is well."""
    if not targets and not logs and not gpus:
        return Markup()
    items: list[Markup] = []
    groups: dict[Markup, list[Target]] = {}
    for target in targets:
        if target.troubled:
            groups.setdefault(state_of(target), []).append(target)
    for state, group in groups.items():
        if len(group) <= NAMED_ALONE:
            items += [_trouble(state, target) for target in group]
        else:
            items.append(_crowd(state, group))
    items += [_log_trouble(log) for log in logs if log.troubled]
    items += _gpu_troubles([gpu for gpu in gpus if gpu.troubled])
    calm = _calm([t for t in targets if not t.troubled], logs, gpus)
    if not items:
        return tag("ul", tag("li", calm), class_="trouble")
    if calm:
        items.append(tag("li", calm, class_="soft"))
    return tag("ul", *items, class_="trouble", aria_label="What to look at")


def _log_trouble(log: Log) -> Markup:
    link = tag("a", name(log.row["name"]), href=f"#{log.anchor}")
    note = f" — {log.note}"
    return tag("li", page_logs.condition(log), ": request log ", link, note)


def _gpu_troubles(gpus: Sequence[Exporter]) -> list[Markup]:
    """Returns a line for each of the first exporters, and one for the others."""
    items = []
    for gpu in gpus[:NAMED_ALONE]:
        link = tag("a", name(gpu.row["target"]), href=f"#{gpu.anchor}")
        note = f" — {gpu.note}" if gpu.note else ""
        items.append(tag("li", page_gpus.condition(gpu), ": GPU exporter ", link, note))
    more = len(gpus) - NAMED_ALONE
    if more > 0:
        link = tag("a", plural(more, "more GPU exporter"), href="#gpus")
        items.append(tag("li", link, " in trouble"))
    return items


def _trouble(state: Markup, target: Target) -> Markup:
    return tag("li", state, ": ", _link(target), f" — {target.note}")


def _crowd(state: Markup, group: Sequence[Target]) -> Markup:
    """Returns one line for many targets in the same trouble."""
    names = join(map(_link, group[:MAX_NAMED]), ", ")
    more = len(group) - MAX_NAMED
    rest = (
        [" and ", tag("a", f"{count(more)} more", href="#targets")] if more > 0 else []
    )
    return tag("li", state, f" ({count(len(group))}): ", names, *rest)


def _link(target: Target) -> Markup:
    return tag("a", name(target.row["target"]), href=f"#{target.anchor}")


def _calm(
    targets: Sequence[Target], logs: Sequence[Log], gpus: Sequence[Exporter]
) -> str:
    """Returns a line on what is not to be worried about, "" when there is nothing."""
    states: dict[str, int] = {}
    for target in targets:
        states[target.state] = states.get(target.state, 0) + 1
    said = [f"{count(number)} {state}" for state, number in states.items()]
    if said:
        (state, number), *_ = states.items()
        said[0] = f"{plural(number, 'target')} {state}"
    conditions: dict[str, int] = {}
    for log in logs:
        if not log.troubled:
            word = log.verdict[2]
            conditions[word] = conditions.get(word, 0) + 1
    said += [f"{plural(n, 'request log')} {word}" for word, n in conditions.items()]
    words = Counter(gpu.verdict[2] for gpu in gpus if not gpu.troubled)
    said += [f"{plural(n, 'GPU exporter')} {word}" for word, n in words.items()]
    return ", ".join(said)


def _title(
    targets: Sequence[Target],
    logs: Sequence[Log],
    gpus: Sequence[Exporter],
    judgements: Sequence[Judgement],
) -> str:
    """Returns the tab's title, the worst first."""
    parts = []
    troubled = sum(1 for target in targets if target.troubled)
    troubled += sum(1 for log in logs if log.troubled)
    troubled += sum(1 for gpu in gpus if gpu.troubled)
    if troubled:
        parts.append(f"{count(troubled)} in trouble")
    missed = sum(1 for j in judgements if j.outcome is Outcome.MISSED)
    if missed:
        parts.append("SLO missed" if missed == 1 else f"{count(missed)} SLOs missed")
    return ", ".join(parts) or "Status"
