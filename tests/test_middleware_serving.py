from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import requests
from asgi_driving import Receiver, Record, chat, sse
from generating_server import (
    Gate,
    GeneratingServer,
    Implementation,
    Step,
    read_to_end,
)
from running_exporter import wait_for
from starlette.responses import JSONResponse, Response

ROLE = sse(chat({"role": "assistant", "content": ""}))
ONE, TWO = sse(chat({"content": "one"})), sse(chat({"content": "two"}))
USAGE = sse(chat(usage={"prompt_tokens": 7, "completion_tokens": 5}))
DONE = sse("[DONE]")
ERROR = sse({"error": {"message": "no", "type": "InternalServerError", "code": 500}})
HTTP: tuple[Implementation, ...] = ("h11", "httptools")


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """Yields where the records arrive."""
    with Receiver(tmp_path / "requests.sock") as opened:
        yield opened


def cut(connection: socket.socket, *, after: bytes) -> None:
    """Reads until *after* has come, then closes the connection as a crash would."""
    read = b""
    while after not in read:
        piece = connection.recv(65_536)
        assert piece, read
        read += piece
    reset(connection)


def reset(connection: socket.socket) -> None:
    """Closes the connection with a reset."""
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.close()


@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ([ROLE, ONE, TWO, USAGE, DONE], "ok"),
        ([ROLE + ONE, TWO[:5], TWO[5:] + USAGE, b"", DONE], "ok"),
        ([ROLE, b"data: \xff\xfe\n\n", b"\x00" * 100_000, DONE], "ok"),
        ([ROLE, b"x" * 2_000_000, DONE], "ok"),
        ([ROLE, ONE, ERROR, DONE], "stream_error"),
        ([ROLE, ONE, ValueError("broken")], "exception"),
        ([ValueError("broken before the first chunk")], "exception"),
    ],
)
def test_a_client_gets_the_same_bytes(
    http: Implementation, steps: Iterable[Step], outcome: str, receiver: Receiver
) -> None:
    """Streams, also broken ones, arrive byte for byte as without the middleware."""
    with GeneratingServer(None, http=http, steps=steps) as plain:
        expected = plain.raw_answer()
    with GeneratingServer(receiver.path, http=http, steps=steps) as server:
        assert server.raw_answer() == expected
        record = receiver.record()
    assert record["outcome"] == outcome
    assert record["failed"] == 0
    assert record["request_id"] == "raw-1"


async def _failing() -> Response | None:
    raise ValueError


async def _refusing() -> Response | None:
    error = {"message": "too long", "type": "BadRequestError", "code": 400}
    return JSONResponse({"error": error}, status_code=400)


async def _whole() -> Response | None:
    return JSONResponse(
        {
            "choices": [{"index": 0, "finish_reason": "stop"}],
            "usage": {"completion_tokens": 5},
        },
        headers={"x-request-id": "from-server"},
    )


@pytest.mark.parametrize("http", HTTP)
def test_answers_that_are_no_stream(http: Implementation, receiver: Receiver) -> None:
    """JSON, refusals and a fault before the headers pass, and are told apart."""
    for before, status, outcome in (
        (_whole, 200, "ok"),
        (_refusing, 400, "http_error"),
        (_failing, None, "exception"),
    ):
        with GeneratingServer(None, http=http, before=before) as plain:
            expected = plain.raw_answer()
        with GeneratingServer(receiver.path, http=http, before=before) as server:
            assert server.raw_answer() == expected
            record = receiver.record()
        assert (record["status"], record["outcome"]) == (status, outcome)
        assert record["exception"] == (None if status else "ValueError")
        assert record["ttft_s"] is None


@pytest.mark.parametrize("http", HTTP)
def test_a_client_that_leaves_before_the_headers(
    http: Implementation, receiver: Receiver
) -> None:
    """An abort while the request is queued is one, whatever the server answers then."""
    gate = Gate()

    async def queued() -> Response | None:
        await gate.wait()
        return None

    with GeneratingServer(receiver.path, http=http, before=queued) as server:
        connection = server.connect()
        wait_for(gate.reached.is_set)
        reset(connection)
        record = receiver.record()
    assert record["outcome"] == "client_abort"
    assert record["ttft_s"] is None
    assert record["disconnect_s"] is not None


@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize(
    ("before_leaving", "chunks", "outcome"),
    [
        ([ROLE], 0, "client_abort"),
        ([ROLE, ONE], 1, "client_abort"),
        ([ROLE, ONE, TWO, USAGE], 2, "client_abort"),
        ([ROLE, ONE, TWO, USAGE, DONE], 2, "ok"),
    ],
)
def test_a_client_that_leaves_a_stream(
    http: Implementation,
    before_leaving: list[bytes],
    chunks: int,
    outcome: str,
    receiver: Receiver,
) -> None:
    """An abort is one before the end mark; right after it the answer was complete."""
    gate = Gate()
    steps: list[Step] = [*before_leaving, gate, ONE]
    with GeneratingServer(receiver.path, http=http, steps=steps) as server:
        cut(server.connect(), after=before_leaving[-1])
        record = receiver.record()
        wait_for(gate.left.is_set)
    assert record["outcome"] == outcome
    assert (record["content_chunks"], record["end_s"]) == (chunks, None)
    assert record["disconnect_s"] is not None
    assert (record["done_s"] is None) == (outcome != "ok")


def test_times_lie_between_what_the_client_did(receiver: Receiver) -> None:
    """First and last content come after the test let them, before it had them."""
    gates = [Gate(), Gate(), Gate()]
    steps: list[Step] = [ROLE, gates[0], ONE, gates[1], TWO, gates[2], USAGE, DONE]
    opened, arrived = [], []
    with GeneratingServer(receiver.path, steps=steps) as server:
        begun = time.time()
        with requests.post(server.url, json={}, stream=True, timeout=20) as answer:
            lines = answer.iter_lines()
            next(lines)
            for gate in gates:
                wait_for(gate.reached.is_set)
                opened.append(time.time())
                gate.opened.set()
                while not next(lines).startswith(b"data"):
                    pass
                arrived.append(time.time())
            assert b"data: [DONE]" in list(lines)
        record = receiver.record()
    assert begun <= record["start"] <= opened[0]
    first, last = (record["start"] + record[k] for k in ("ttft_s", "last_content_s"))
    # The wall clock and the monotonic one are read one after the other.
    slack = 0.001
    assert opened[0] - slack <= first <= arrived[0] + slack
    assert opened[1] - slack <= last <= arrived[1] + slack
    assert record["max_gap_s"] == pytest.approx(last - first, abs=2e-6)
    assert record["done_s"] <= record["end_s"]


class Counted:
    """Steps of a stream that count how far it came."""

    def __init__(self, piece: bytes, count: int) -> None:
        self.piece = piece
        self.count = count
        self.given = 0

    def __iter__(self) -> Iterator[Step]:
        for _ in range(self.count):
            self.given += 1
            yield self.piece


def read_late(server: GeneratingServer, steps: Counted) -> tuple[int, bytes]:
    """Returns how far the stream came until its client began to read, and the rest."""
    connection = server.connect()
    before = -1
    while before != steps.given:  # the kernel's buffers fill up
        before = steps.given
        time.sleep(0.3)
    return before, read_to_end(connection)


def test_a_slow_reader_holds_the_stream_as_without_us(receiver: Receiver) -> None:
    """Backpressure reaches the application, and the time it took is recorded."""
    piece, count = sse(chat({"content": "x" * 100_000})), 400
    plain = Counted(piece, count)
    with GeneratingServer(None, steps=plain) as server:
        _, expected = read_late(server, plain)
    steps = Counted(piece, count)
    with GeneratingServer(receiver.path, steps=steps) as server:
        held, read = read_late(server, steps)
        record = receiver.record()
    assert held < count
    assert read == expected
    assert (record["content_chunks"], record["outcome"]) == (count, "ok")
    assert record["send_wait_s"] > 0.3


def test_only_generation_is_recorded(receiver: Receiver) -> None:
    """Other methods, routes and unknown paths have no record."""
    steps = [ROLE, ONE, USAGE, DONE]
    with GeneratingServer(receiver.path, steps=steps) as server:
        models = server.url.replace("chat/completions", "models")
        assert requests.get(models, timeout=20).json() == {"data": []}
        assert requests.head(models, timeout=20).status_code == 200
        assert requests.get(server.url, timeout=20).status_code == 200
        assert requests.post(server.url + "/x", timeout=20).status_code == 404
        headers = {"x-tenant-id": "acme", "x-team": "blue", "x-request-id": "r1"}
        requests.post(server.url, headers=headers, json={"model": "m"}, timeout=20)
        record = receiver.record()
        assert receiver.is_empty()
    assert (record["request_id"], record["tenant"]) == ("r1", "acme")
    assert (record["headers"], record["model"]) == ({"x-team": "blue"}, "m")


def test_requests_at_the_same_time_are_kept_apart(receiver: Receiver) -> None:
    """Streams that interleave have each its own record."""
    gate = Gate()
    steps: list[Step] = [ROLE, ONE, gate, USAGE, DONE]
    with GeneratingServer(receiver.path, steps=steps) as server:
        connections = [server.connect() for _ in range(8)]
        records: list[Record] = []
        for connection in connections[:4]:
            cut(connection, after=ONE)
            records.append(receiver.record())
        gate.opened.set()
        for connection in connections[4:]:
            assert DONE in read_to_end(connection)
            records.append(receiver.record())
    outcomes = [record["outcome"] for record in records]
    assert outcomes == ["client_abort"] * 4 + ["ok"] * 4
    assert sorted(record["seq"] for record in records) == list(range(1, 9))
    assert json.dumps(records).count('"completion_tokens": 5') == 4
