"""A real Envoy's log before a real vLLM, request by request against the client."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from episodes import DIRECTORY, NAMES
from gateway_truth import slo

from analyzer.gateways.detect import detect
from analyzer.gateways.record import Outcome, RequestRecord, TokensKind, TtftKind
from analyzer.judgement import Verdict, judge
from analyzer.slo import SloClass

SLOS = {
    "usual": slo(ttft=1.0, tpot=0.05, e2e=10.0),
    "tight": slo(ttft=0.3, tpot=0.03, e2e=4.0),
    "lax": slo(ttft=2.0, tpot=0.1, e2e=20.0),
}
MARGIN = 0.02
NO_TEXT = (
    "Tokens that decode to no text, such as half a character, reach no client: it "
    "measured to its last text, Envoy to the end of all 6 or 8 tokens, 2 to 3 s later."
)
END_MARK = (
    "The end mark came 10 ms after the last of 6 tokens, which is 2 ms a token: 97 ms "
    "by the client and 100.5 ms by Envoy."
)
KNOWN = {
    ("prefill-a", "lax"): {
        "prefill-a-00058": NO_TEXT,
        "prefill-a-00101": NO_TEXT,
        "prefill-a-00122": NO_TEXT,
        "prefill-a-00137": END_MARK,
    },
}


@dataclass(frozen=True)
class Client:
    """A request by its client's clock; latencies in seconds."""

    outcome: str
    streamed: bool
    values: dict[str, float | None]

    def good(self, slo_class: SloClass) -> bool:
        """Whether the answer came whole, as a stream, and met all criteria."""
        return (
            self.outcome == "ok"
            and self.streamed
            and all(
                (value := self.values[name]) is None or value <= limit.seconds
                for name, limit in slo_class.good.items()
            )
        )

    def near(self, slo_class: SloClass) -> bool:
        """Whether some latency is within 2 % of its threshold."""
        return any(
            (value := self.values[name]) is not None
            and abs(value - limit.seconds) <= MARGIN * limit.seconds
            for name, limit in slo_class.good.items()
        )


def clients(name: str) -> dict[str, Client]:
    """Returns the requests of an episode by id."""

    def seconds(text: str) -> float | None:
        return float(text) if text else None

    with (DIRECTORY / name / "truth.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["request_id"]: Client(
                row["outcome"],
                row["stream"] == "1",
                {c: seconds(row[f"{c}_s"]) for c in ("ttft", "tpot", "e2e")},
            )
            for row in csv.DictReader(file)
        }


def logged(name: str) -> Iterator[RequestRecord]:
    """Yields the records of an episode's log."""
    data = lzma.decompress((DIRECTORY / name / "access.log.xz").read_bytes())
    lines = data.splitlines()
    log_format = detect(lines)
    assert log_format is not None
    assert log_format.name == "envoy"
    for line in lines:
        record = log_format.parse(line)
        assert record is not None
        yield record


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("criteria", SLOS)
def test_good_is_what_the_client_calls_good(name: str, criteria: str) -> None:
    """Away from the thresholds every verdict of good agrees, or has its reason."""
    slo_class, known = SLOS[criteria], clients(name)
    differing = set()
    for record in logged(name):
        client = known[record.request_id]
        if client.near(slo_class):
            continue
        good = judge(record, slo_class).verdict is Verdict.GOOD
        if good != client.good(slo_class):
            differing.add(record.request_id)
    assert differing == set(KNOWN.get((name, criteria), {}))


@pytest.mark.parametrize("name", NAMES)
def test_every_request_has_one_record(name: str) -> None:
    """No request is missing, none comes twice, and each has what vLLM tells of it."""
    records, known = list(logged(name)), clients(name)
    assert sorted(r.request_id for r in records) == sorted(known)
    for record in records:
        client = known[record.request_id]
        assert record.attempts == 1
        if client.outcome != "ok":
            continue
        assert record.outcome is Outcome.OK
        assert record.tokens_kind is TokensKind.USAGE
        assert record.stream is client.streamed
        if client.streamed:
            assert record.ttft_kind is TtftKind.FIRST_BODY_BYTE
            assert record.ttft == pytest.approx(client.values["ttft"], abs=0.05)
        assert record.e2e == pytest.approx(client.values["e2e"], abs=0.1)


def test_who_closes_right_after_the_end_mark_has_the_answer() -> None:
    """Envoy notes a disconnect, but usage had been seen: complete, with its total."""
    closed = 0
    for name in NAMES:
        known = clients(name)
        data = lzma.decompress((DIRECTORY / name / "access.log.xz").read_bytes())
        for line in data.splitlines():
            if b'"response_flags":"DC"' not in line:
                continue
            log_format = detect([line])
            assert log_format is not None
            record = log_format.parse(line)
            assert record is not None
            client = known[record.request_id]
            whole = client.outcome == "ok"
            closed += whole
            assert (record.outcome is Outcome.OK) == whole
            assert (record.completion_tokens is not None) == whole
            if whole:
                assert record.e2e == pytest.approx(client.values["e2e"], abs=0.05)
    assert closed > 20
