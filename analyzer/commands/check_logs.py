"""`goodput check --live` for request logs: what each can tell, and what to add."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.commands.findings import finding_row
from analyzer.config import Config
from analyzer.config_gateways import GatewaySource
from analyzer.finding import Finding
from analyzer.gateways.detect import AUTO
from analyzer.gateways.framing import Framing, syslog_text
from analyzer.judgement import Verdict
from analyzer.log_audit import Chunk, ClassAudit, LogAudit, audit_log
from analyzer.log_findings import counted_twice, log_findings
from analyzer.sources.datagrams import (
    UNIX,
    SourceError,
    bind_udp,
    bind_unix,
    is_served,
    listen,
    remove_unix,
)
from analyzer.sources.log_probe import SAMPLE_BYTES, FileState, sample
from analyzer.strict import format_duration

STANDARD_INPUT = "-"
IN_USE = (
    "in use, by the exporter perhaps: nothing can be read here without taking it away; "
    "see the exporter's status page"
)
NOT_PROBED = "not listened to: give --listen 30s while no exporter runs"


@dataclass(frozen=True, slots=True)
class LogProbe:
    """One log as it was found: `state`, its files, and what its lines tell.

    `state` is read, empty, missing, unreadable, in_use, silent (nothing came while
    we listened) or not_probed.
    """

    source: GatewaySource
    state: str
    audit: LogAudit
    detail: str = ""
    files: tuple[FileState, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the log could not be looked at, though it should be there."""
        return self.state in ("missing", "unreadable")

    @property
    def place(self) -> str:
        """Where the log comes from, as configured."""
        return self.source.path or self.source.socket or self.source.syslog


def probe_logs(
    config: Config, aliases: Mapping[str, str], seconds: float
) -> list[LogProbe]:
    """Looks at every configured log; free sockets are listened to for *seconds*.

    *aliases* gives the names that mean a served model.
    """
    probes = [_probe(source, config, aliases, seconds) for source in config.gateways]
    for number, probe in enumerate(probes):
        for other in probes[:number]:
            same = len(probe.audit.ids & other.audit.ids)
            if same and probe.source.counts and other.source.counts:
                found = counted_twice(other.source.name, same)
                probes[number] = replace(probe, findings=(*probe.findings, found))
    return probes


def _probe(
    source: GatewaySource, config: Config, aliases: Mapping[str, str], seconds: float
) -> LogProbe:
    files: tuple[FileState, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    if source.path == STANDARD_INPUT:
        state, detail = "not_probed", "standard input is the exporter's own"
    elif source.path:
        found = sample(source.path, SAMPLE_BYTES)
        files, chunks = found.files, found.chunks
        state, detail = _state(files)
    else:
        state, detail, lines = _heard(source, seconds)
        chunks = (Chunk(lines),) if lines else ()
    now = time.time()
    audit = audit_log(chunks, source, config.slo_classes, aliases=aliases, now=now)
    findings = log_findings(audit, config.slo_classes, now)
    if not chunks and state in ("read", "empty", "silent"):
        message = f"no line to judge by{': ' if detail else ''}{detail}"
        findings = (Finding("no_lines", "warning", message),)
    unread = [file for file in files if file.state == "unreadable"]
    if unread and state != "unreadable":
        message = f"{len(unread)} of {len(files)} files cannot be read, such as "
        message += f"{unread[0].path}: {unread[0].detail}"
        findings = (Finding("unreadable_files", "warning", message), *findings)
    return LogProbe(source, state, audit, detail, files, findings)


def _state(files: tuple[FileState, ...]) -> tuple[str, str]:
    """Returns the state of a log by its files: the worst, when none can be read."""
    if not files:
        return "missing", "no file matches"
    states = {file.state: file.detail for file in reversed(files)}
    for state in ("read", "empty"):
        if state in states:
            return state, ""
    state = "unreadable" if "unreadable" in states else "missing"
    return state, states[state]


def _heard(source: GatewaySource, seconds: float) -> tuple[str, str, list[bytes]]:
    """Returns state, detail and lines of a socket or of syslog."""
    path = source.socket.removeprefix(UNIX)
    if path and is_served(path):
        return "in_use", IN_USE, []
    if path and not seconds:
        return "not_probed", NOT_PROBED, []
    try:
        sock = bind_unix(path) if path else bind_udp(source.syslog)
    except SourceError as error:
        return (
            ("in_use", IN_USE, []) if error.in_use else ("unreadable", str(error), [])
        )
    inode = Path(path).lstat().st_ino if path else 0
    strip = bytes if path else syslog_text
    try:  # whether a port is free is known by taking it, for no time to speak of
        lines = listen(sock, seconds=seconds, max_bytes=SAMPLE_BYTES, strip=strip)
    finally:
        sock.close()
        if path:
            remove_unix(path, inode)
    if lines:
        return "read", "", lines
    if not seconds:
        return "not_probed", NOT_PROBED, []
    return "silent", f"nothing came in {format_duration(seconds)}", []


def log_document(probe: LogProbe) -> dict[str, Any]:
    """Returns what was found of a log, for JSON; what is not known is null."""
    found = probe.audit
    return {
        "gateway": probe.source.name,
        "place": probe.place,
        "state": probe.state,
        "detail": probe.detail,
        "counts": probe.source.counts,
        "files": [
            {
                "path": file.path,
                "state": file.state,
                "detail": file.detail,
                "bytes": file.size,
                "written": file.written,
                "rotated": list(file.rotated),
                "read_from": file.read_from or None,
                "bytes_read": file.taken,
            }
            for file in probe.files
        ],
        "format": found.format.name if found.format else None,
        "recognised": probe.source.format == AUTO and found.format is not None,
        "looks_like": found.looks_like or None,
        "framing": None if found.framing is Framing.AUTO else found.framing.value,
        "lines": found.lines,
        "lines_without_request": found.other,
        "unparsed": [
            {"reason": reason, "lines": n, "example": found.examples.get(reason, "")}
            for reason, n in found.unparsed.most_common()
        ],
        "requests": _requests(found),
        "headers": [
            {"route": route, "answers": answers, "with_first_token": late}
            for route, answers, late in found.habits.routes()
        ],
        "clock": {
            "last_record": found.clock.last,
            "future": found.clock.future,
            "ahead_seconds": found.clock.ahead,
        },
        "criteria": sorted(found.format.criteria) if found.format else [],
        "never_tells": list(found.format.blind) if found.format else [],
        "classes": [_class(name, row) for name, row in found.classes.items()],
        "findings": list(map(finding_row, probe.findings)),
    }


def _requests(found: LogAudit) -> dict[str, Any]:
    return {
        "total": found.requests,
        "generation": found.generation,
        "streamed": found.streamed,
        "not_streamed": found.unstreamed,
        "streaming_unknown": found.unknown_streaming,
        "streams_ended": found.streams_ended,
        "streams_with_usage": found.with_usage,
        "streams_without_usage": found.without_usage,
        "failed": found.failed,
        "ending_unknown": found.unended,
        "without_class": found.classless,
        "without_model": found.nameless,
        "excluded": dict(found.excluded),
        "first_output": {kind.value: n for kind, n in found.ttft_kinds.items()},
    }


def _class(name: str, row: ClassAudit) -> dict[str, Any]:
    return {
        "class": name,
        "requests": row.judged,
        **{verdict.value: row.verdicts[verdict] for verdict in Verdict},
        "criteria": [
            {
                "criterion": criterion,
                "answers": answers.total,
                "evaluable": answers.known,
                "unknown": dict(answers.unknown),
            }
            for criterion, answers in row.criteria.items()
        ],
    }
