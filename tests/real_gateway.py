"""A server that streams tokens, real gateways before it, and a client with a clock."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from click.testing import CliRunner
from running_exporter import wait_for

from analyzer.cli import main
from analyzer.gateways.detect import detect
from analyzer.gateways.format import Format
from analyzer.gateways.record import RequestRecord, TokensKind, TtftKind

CONFIGS = Path(__file__).parents[1] / "deploy" / "gateways"
ROUTE = "/v1/chat/completions"
# Far enough apart that no busy machine takes one for another.
FIRST_TOKEN, GAP, STALL, TOKENS, BEFORE_END = 0.5, 0.02, 0.2, 9, 0.4
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
)
STREAMED = ("plain", "late_headers", "comments", "torn", "closes_after_done")
# Answers that do not name their model.
UNNAMED = ("whole", "refused")
# Between a gateway's clock and a client's on a busy machine; headers are 500 ms off.
CLOSE = 0.2
SCENARIOS = (
    "plain",
    "late_headers",
    "comments",
    "torn",
    "closes_after_done",
    "whole",
    "refused",
    "error",
    "cut",
    "abort",
)


def _event(delta: object = None, **more: object) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta}]
    body = {"id": "x", "model": "served", "choices": choices, **more}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


ROLE = _event({"role": "assistant", "content": ""}, usage=None)
TOKEN = _event({"content": "tok "}, usage=None)
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": TOKENS,
    "prompt_tokens_details": {"cached_tokens": 64},
}
ERROR = b'data: {"error":{"message":"out of memory","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"


class Upstream:
    """An LLM server whose answer is named by a header, or first in the path."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve, args=(connection,), daemon=True
                ).start()

    def _serve(self, connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = b""
            while b"\r\n\r\n" not in head:
                received = connection.recv(65536)
                if not received:
                    return
                head += received
            request, *lines = head.lower().split(b"\r\n")
            names = [x for x in lines if x.startswith(b"x-scenario:")]
            name = names[0][11:].strip() if names else request.split(b"/")[1]
            scenario = name.decode()
            if scenario in ("whole", "refused"):
                self._answer_whole(connection, refused=scenario == "refused")
            else:
                self._stream(connection, scenario)

    @staticmethod
    def _answer_whole(connection: socket.socket, *, refused: bool) -> None:
        message = {"choices": [{"message": {"content": "tok"}}], "usage": USAGE}
        body = json.dumps({"error": {"message": "busy"}} if refused else message)
        status = "429 Too Many Requests" if refused else "200 OK"
        time.sleep(FIRST_TOKEN)
        connection.sendall(
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close"
            f"\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )

    @staticmethod
    def _stream(connection: socket.socket, scenario: str) -> None:
        def send(data: bytes) -> None:
            connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

        if scenario == "late_headers":
            time.sleep(FIRST_TOKEN)
            connection.sendall(HEAD)
        else:
            connection.sendall(HEAD)
            time.sleep(FIRST_TOKEN / 5)
            if scenario == "comments":
                send(b": keep-alive\n\n")
            time.sleep(4 * FIRST_TOKEN / 5)
        for number in range(TOKENS):
            if number:
                time.sleep(STALL if number == 3 else GAP)
            if scenario == "torn":  # in the middle of a key and of a mark
                send(TOKEN[:-26])
                time.sleep(0.002)
                send(TOKEN[-26:])
            else:
                send((b"" if number else ROLE) + TOKEN)
            if scenario == "cut" and number == 4:
                return
            if scenario == "error" and number == 4:
                send(ERROR)
                break
        else:
            send(_event(usage=USAGE))
        send(DONE[:9])
        send(DONE[9:])
        if scenario == "closes_after_done":
            time.sleep(BEFORE_END)
        connection.sendall(b"0\r\n\r\n")


@dataclass(slots=True)
class Seen:
    """What the client saw; seconds since it began."""

    scenario: str
    ttft: float | None = None
    last: float | None = None
    max_gap: float = 0.0
    e2e: float = 0.0
    tokens: int = 0

    @property
    def request_id(self) -> str:
        """The id that the request carried."""
        return f"id-{self.scenario}"

    def token(self, moment: float) -> None:
        """Notes a token."""
        self.tokens += 1
        if self.last is None:
            self.ttft = moment
        else:
            self.max_gap = max(self.max_gap, moment - self.last)
        self.last = moment


Pairs = dict[str, tuple[RequestRecord, Seen]]


def ask(
    port: int,
    scenario: str,
    *,
    body: bytes = b'{"stream":true}',
    headers: Mapping[str, str] | None = None,
) -> Seen:
    """Sends one request and reads its answer as an impatient client would."""
    seen, begun = Seen(scenario), time.monotonic()
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    sent = {
        "Content-Type": "application/json",
        "X-Request-Id": seen.request_id,
        "X-Tenant-Id": "acme",
        "X-Model": "asked",
        "X-Scenario": scenario,
        **(headers or {}),
    }
    with closing(connection), suppress(HTTPException, OSError):
        connection.request("POST", f"{ROUTE}?key=secret", body, sent)
        _read(connection.getresponse(), seen, begun)
    seen.e2e = time.monotonic() - begun
    return seen


def _read(answer: HTTPResponse, seen: Seen, begun: float) -> None:
    for line in answer:
        if b'"content":"tok' in line and b'"delta"' in line:
            seen.token(time.monotonic() - begun)
        if seen.scenario == "abort" and seen.tokens == 3:
            return
        if seen.scenario == "closes_after_done" and b"[DONE]" in line:
            return


@contextmanager
def running(
    command: Sequence[str | Path],
    port: int,
    log: Path,
    *,
    ready: Callable[[], bool] | None = None,
    seconds: float = 20.0,
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Runs a gateway until the block ends; its messages go to *log*."""
    serves = ready or (lambda: _serves(port))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            wait_for(lambda: process.poll() is not None or serves(), seconds=seconds)
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.send_signal(SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _serves(port: int) -> bool:
    """Whether a request reaches the server: some gateways listen before they route."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    with closing(connection), suppress(HTTPException, OSError):
        connection.request("POST", ROUTE, b"{}", {"X-Scenario": "refused"})
        return connection.getresponse().status == 429
    return False


def adapted(name: str, target: Path, **changes: str) -> Path:
    """Writes a shipped configuration with some texts replaced; returns its path.

    Each text must be there, so that what is tested is what is shipped.
    """
    text = (CONFIGS / name).read_text()
    for old, new in changes.items():
        assert old in text, f"{name} lacks {old!r}"
        text = text.replace(old, new)
    target.write_text(text)
    return target


def exchanged(port: int) -> dict[str, Seen]:
    """Has every scenario happen, all at once; returns what the client saw."""
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        found = pool.map(lambda scenario: ask(port, scenario), SCENARIOS)
        return {seen.scenario: seen for seen in found}


def wait_for_log(log: Path) -> None:
    """Waits until every scenario's line was written."""
    ids = [f"id-{scenario}".encode() for scenario in SCENARIOS]

    def whole() -> bool:
        data = log.read_bytes() if log.exists() else b""
        return data.endswith(b"\n") and all(name in data for name in ids)

    wait_for(whole)


def logged(log: Path, text: bytes = b"id-") -> tuple[Format, dict[str, RequestRecord]]:
    """Returns the format of a gateway's log and its records by scenario."""
    lines = [line for line in log.read_bytes().splitlines() if text in line]
    log_format = detect(lines)
    assert log_format is not None, lines
    records = [log_format.parse(line) for line in lines]
    known = [record for record in records if record is not None]
    return log_format, {r.request_id.removeprefix("id-"): r for r in known}


def paired(log: Path, seen: dict[str, Seen]) -> Pairs:
    """Returns record and truth of each scenario; no request may be missing."""
    _, records = logged(log)
    assert sorted(records) == sorted(SCENARIOS)
    return {name: (records[name], seen[name]) for name in SCENARIOS}


def assert_common(pairs: Pairs, *, model: str) -> None:
    """What any gateway tells: who asked what, the status, and when it was over."""
    now = time.time()
    for name, (record, seen) in pairs.items():
        assert record.route == ROUTE
        assert record.tenant == "acme"
        assert record.model == (model if name not in UNNAMED else "asked")
        assert record.status == (429 if name == "refused" else 200)
        assert record.attempts == 1
        assert record.stream is (name not in ("whole", "refused"))
        assert record.start is not None
        assert now - 60 < record.start < now
        if name in ("abort", "closes_after_done", "cut"):
            continue  # noticed at the next write, or the connection is closed later
        assert record.e2e == pytest.approx(seen.e2e, abs=CLOSE)


def assert_first_output(pairs: Pairs, kind: TtftKind) -> None:
    """Streams have a time to their first output, at the token, not at the headers."""
    for name, (record, seen) in pairs.items():
        if name in ("whole", "refused"):
            assert (record.ttft, record.ttft_kind) == (None, TtftKind.NONE)
            continue
        assert record.ttft_kind is kind
        assert record.header_time is not None
        if name == "comments" and kind is not TtftKind.TOKEN:
            continue
        assert record.ttft is not None
        assert seen.ttft is not None
        assert record.ttft == pytest.approx(seen.ttft, abs=CLOSE)
        assert record.ttft >= FIRST_TOKEN - 0.01


def assert_tokens(pairs: Pairs, *, gap: bool) -> None:
    """Finished streams have the server's tokens, and the client's time between them."""
    if gap:  # what comes without usage is counted, and only once
        for name, tokens in (("cut", 5), ("error", 5), ("abort", 3)):
            record, _ = pairs[name]
            assert record.tokens_kind is TokensKind.COUNTED
            assert record.completion_tokens == tokens
    for name in STREAMED:
        record, seen = pairs[name]
        assert record.tokens_kind is TokensKind.USAGE
        assert record.completion_tokens == TOKENS == seen.tokens
        assert (record.prompt_tokens, record.cached_tokens) == (100, 64)
        assert seen.last is not None
        assert seen.ttft is not None
        if name == "closes_after_done" and not gap:
            continue  # its end is noticed when the server next writes
        between = (seen.last - seen.ttft) / (TOKENS - 1)
        assert record.tpot == pytest.approx(between, abs=CLOSE / (TOKENS - 1))
        if gap:
            assert record.max_gap is not None
            assert STALL - 0.01 <= record.max_gap <= STALL + CLOSE


def checked(log: Path, directory: Path) -> dict[str, Any]:
    """Returns what `goodput check --live` says of a log under a joint class."""
    config = directory / "c.yml"
    config.write_text(
        "slo_classes: [{name: joint, objective: 0.9,"
        " good: {ttft: 1s, tpot: 50ms, max_gap: 1s, e2e: 5s}}]\n"
        f"gateways: [{{name: edge, path: '{log}'}}]\n"
    )
    arguments = ["check", "--config.file", str(config), "--live", "--format", "json"]
    found = CliRunner().invoke(main, arguments)
    (row,) = json.loads(found.stdout)["gateways"]
    warned = any(finding["severity"] == "warning" for finding in row["findings"])
    assert found.exit_code == (1 if warned else 0)
    return dict(row)


def evaluable(row: dict[str, Any]) -> dict[str, int]:
    """Returns for how many answers each criterion of the class can be evaluated."""
    (only,) = row["classes"]
    return {item["criterion"]: item["evaluable"] for item in only["criteria"]}
