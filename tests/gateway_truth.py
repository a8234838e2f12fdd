"""Recorded access logs of real gateways, judged beside what the client saw.

The logs were written by nginx 1.22, HAProxy 2.6, Envoy 1.40, Traefik 3.7, Caddy 2.11
and LiteLLM 1.108 before a server that had every kind of bad day. `python
tests/gateway_truth.py` prints the table of verdicts.
"""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from analyzer.gateways.detect import detect
from analyzer.gateways.format import Format
from analyzer.gateways.record import LineProblem, RequestRecord
from analyzer.judgement import Verdict, judge
from analyzer.slo import Match, SloClass, Threshold

DIRECTORY = Path(__file__).parent / "fixtures" / "gateway"
# A log and where the truth of its requests is.
LOGS = {
    "envoy": "envoy",
    "envoy-lua": "envoy-lua",
    "envoy-comments": "envoy-comments",
    "envoy-text": "envoy",
    "nginx": "nginx",
    "nginx-buffered": "nginx-buffered",
    "nginx-combined": "nginx",
    "nginx-njs": "nginx-njs",
    "nginx-njs-comments": "nginx-njs-comments",
    "nginx-lua": "nginx-lua",
    "haproxy": "haproxy",
    "haproxy-corked": "haproxy-corked",
    "haproxy-text": "haproxy-text",
    "haproxy-stamped": "haproxy-stamped",
    "haproxy-stamped-comments": "haproxy-stamped-comments",
    "traefik": "traefik",
    "traefik-text": "traefik-text",
    "caddy": "caddy",
    "caddy-default": "caddy-default",
    "litellm": "litellm",
}
# Logs whose lines hold no request id.
WITHOUT_ID = frozenset(("nginx-combined", "traefik-text"))


def slo(**good: float) -> SloClass:
    """Returns a class with these criteria, in seconds."""
    return SloClass(
        name="test",
        match=Match(),
        good={name: Threshold(seconds) for name, seconds in good.items()},
        objective=0.9,
        window_seconds=3600.0,
    )


SLOS = {
    "strict": slo(ttft=0.3, tpot=0.015, e2e=1.2),
    "tight": slo(ttft=0.2, tpot=0.01, e2e=0.8),
    "loose": slo(ttft=0.5, tpot=0.025, e2e=2.0),
    "first": slo(ttft=0.4, e2e=1.5),
    "total": slo(e2e=1.2),
}


@dataclass(frozen=True)
class Truth:
    """One request as its client saw it; latencies in seconds, None for none."""

    request_id: str
    label: str
    outcome: str
    streamed: bool
    start: float
    ttft: float | None
    tpot: float | None
    e2e: float | None

    @property
    def aborted(self) -> bool:
        """Whether the client left before the end."""
        return self.outcome == "client_abort"

    def good(self, slo_class: SloClass) -> bool:
        """Whether it ended well and met all criteria that apply to it."""
        values = {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.e2e}
        return self.outcome == "ok" and all(
            (value := values[name]) is None or value <= threshold.seconds
            for name, threshold in slo_class.good.items()
        )

    def knowable(self, slo_class: SloClass) -> bool:
        """Whether all criteria have a value: a whole answer has no first token."""
        return self.streamed or "ttft" not in slo_class.good


@dataclass
class Row:
    """How one log's verdicts compare with the truth, under one class."""

    log: str = ""
    requests: int = 0
    truly_good: int = 0
    called_good: int = 0
    called_bad: int = 0
    unevaluable: int = 0
    excluded: int = 0
    wrongly_good: list[Truth] = field(default_factory=list)
    wrongly_bad: list[Truth] = field(default_factory=list)
    aborts: int = 0
    aborts_called_good: list[Truth] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """Wrongly good and wrongly bad ones."""
        return len(self.wrongly_good) + len(self.wrongly_bad)


def unpacked(name: str, log: str = "access.log") -> list[bytes]:
    """Returns the lines of a recorded log, in order."""
    data = lzma.decompress((DIRECTORY / name / f"{log}.xz").read_bytes())
    return [line for line in data.split(b"\n") if line]


def truths(name: str) -> dict[str, Truth]:
    """Returns the truth of a log's requests by id."""
    data = lzma.decompress((DIRECTORY / LOGS[name] / "truth.csv.xz").read_bytes())
    rows = csv.DictReader(io.StringIO(data.decode()))
    return {row["rid"]: _truth(row) for row in rows}


def _truth(row: Mapping[str, str]) -> Truth:
    def seconds(name: str) -> float | None:
        return float(row[name]) / 1e3 if row[name] else None

    ttft, last = seconds("cli_ttft_ms"), seconds("cli_last_token_ms")
    tokens = int(row["cli_tokens"] or 0)
    tpot = None
    if ttft is not None and last is not None and tokens > 1:
        tpot = (last - ttft) / (tokens - 1)
    return Truth(
        request_id=row["rid"],
        label=row["label"],
        outcome=row["cli_outcome"],
        streamed=row["stream"] == "1",
        start=float(row["epoch_req_start"]),
        ttft=ttft,
        tpot=tpot,
        e2e=seconds("cli_e2e_ms"),
    )


def records(log_format: Format, lines: Iterable[bytes]) -> Iterator[RequestRecord]:
    """Yields the records of *lines*, and those still held at their end."""
    for line in lines:
        try:
            record = log_format.parse(line)
        except LineProblem:
            continue
        if record is not None:
            yield record
    yield from log_format.held()


def read(name: str) -> list[tuple[RequestRecord, Truth]]:
    """Returns a log's records, each with the truth of its request."""
    lines = unpacked(name)
    log_format = detect(lines)
    assert log_format is not None, name
    found = list(records(log_format, lines))
    known = truths(name)
    if name in WITHOUT_ID:
        return _joined_by_time(found, list(known.values()))
    return [
        (record, known[record.request_id])
        for record in found
        if record.request_id in known
    ]


def _joined_by_time(
    found: list[RequestRecord], known: list[Truth]
) -> list[tuple[RequestRecord, Truth]]:
    """Joins records that have no id by status, second and duration."""
    joined = []
    left = {truth.request_id: truth for truth in known}
    for record in found:
        if record.start is None or record.e2e is None:
            continue
        near = [
            truth
            for truth in left.values()
            if truth.e2e is not None
            and -0.1 <= truth.start - record.start <= 1.1
            and abs(truth.e2e - record.e2e) <= 0.02
        ]
        if near:
            best = min(near, key=lambda t: abs((t.e2e or 0.0) - (record.e2e or 0.0)))
            joined.append((record, left.pop(best.request_id)))
    return joined


def compared(name: str, slo_class: SloClass) -> Row:
    """Returns how a log's verdicts compare with the truth."""
    row = Row(name)
    for record, truth in read(name):
        verdict = judge(record, slo_class).verdict
        if truth.aborted:
            row.aborts += 1
            if verdict is Verdict.GOOD:
                row.aborts_called_good.append(truth)
            continue
        row.requests += 1
        good = truth.good(slo_class)
        row.truly_good += good and truth.knowable(slo_class)
        row.called_good += verdict is Verdict.GOOD
        row.called_bad += verdict is Verdict.BAD
        row.unevaluable += verdict is Verdict.UNEVALUABLE
        row.excluded += verdict is Verdict.EXCLUDED
        if verdict is Verdict.GOOD and not (good and truth.knowable(slo_class)):
            row.wrongly_good.append(truth)
        if verdict is Verdict.BAD and good:
            row.wrongly_bad.append(truth)
    return row


def table(slo_class: SloClass) -> str:
    """Returns the table of all logs under one class, as text."""
    heads = [
        "log",
        "requests",
        "truly good",
        "called good",
        "bad",
        "unevaluable",
        "excluded",
        "wrongly good",
        "wrongly bad",
        "aborts good",
    ]
    lines = [heads]
    for name in LOGS:
        row = compared(name, slo_class)
        values = [getattr(row, f.name) for f in fields(row)]
        shown = [len(v) if isinstance(v, list) else v for v in values]
        *counts, aborts, good_aborts = shown
        lines.append([*map(str, counts), f"{good_aborts} of {aborts}"])
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main() -> None:
    """Prints the tables."""
    for name, slo_class in SLOS.items():
        limits = {c: t.seconds for c, t in slo_class.good.items()}
        print(f"\n{name}: {limits}\n{table(slo_class)}")  # noqa: T201


if __name__ == "__main__":
    main()
