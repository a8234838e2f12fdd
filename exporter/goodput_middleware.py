"""Records when each LLM request got its tokens: ASGI middleware in a single file.

    PYTHONPATH=/goodput vllm serve … --middleware goodput_middleware.GoodputMiddleware
    app.add_middleware(GoodputMiddleware, socket_path="/run/goodput/requests.sock")

It needs nothing but Python 3.9 or later, so the file can be copied to any server.
Each generation request gives one JSON record, sent as a datagram to a unix socket or
written as a line of a size-capped file; docs/middleware.md lists its fields. Prompts,
answers and keys are in no record. Bytes pass through unchanged: a chunk is looked at
after it was handed to the server, records leave from a thread of their own, and a
fault in here is counted in the next record instead of reaching the application.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

FORMAT = "goodput-request"
VERSION = 1
DEFAULT_SOCKET = "/run/goodput/requests.sock"
DEFAULT_FILE_MAX_BYTES = 64 << 20
DEFAULT_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/generate",
)
SEEN = "goodput.seen"  # in a scope: `--middleware` given twice records once
REQUEST_HEAD_BYTES = 64 << 10  # of a request's body, for its model and options
BUFFER_BYTES = 256 << 10  # of one event, or of an answer that is no stream
QUEUED_RECORDS = 1024
HOLD_SECONDS = 30.0  # how long records wait for a receiver that went away
RETRY_SECONDS = 0.1
CLOSE_SECONDS = 0.5
LONGEST_TEXT = 256
MOST_HEADERS = 16
MOST_CHOICES = 1024
SECRET_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key")
)

logger = logging.getLogger("goodput_middleware")


class TooLargeError(Exception):
    """An event or an answer is larger than what is kept of one."""


# --- Delivery: records leave from a thread that may wait where the server must not ---


class _Datagrams:
    """One datagram per record to a unix socket that may come and go."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._socket: socket.socket | None = None

    def write(self, line: bytes) -> None:
        """Sends *line*; raises OSError without a receiver, or when it is too slow."""
        if self._socket is None:
            self._socket = self._connected()
        try:
            self._socket.send(line)
        except socket.timeout:  # Python 3.9 has no other name for it
            raise
        except OSError:
            self.close()  # a receiver that restarted has another socket
            raise

    def close(self) -> None:
        """Gives up the socket; another record opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        opened.settimeout(RETRY_SECONDS)
        try:
            opened.connect(self.name)
        except OSError:
            opened.close()
            raise
        return opened


class _RotatingFile:
    """Lines in a file that several processes may share; it keeps one backup, `.1`."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self.name = path
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._fd = -1
        self._torn = False

    def write(self, line: bytes) -> None:
        """Appends *line* in a single write; raises OSError when the disk refuses it."""
        data = (b"\n" if self._torn else b"") + line + b"\n"
        if not self._is_current():
            self._reopen()
        size = os.fstat(self._fd).st_size
        if size and size + len(data) > self._max_bytes:
            self._rotate()
        written = os.write(self._fd, data)
        self._torn = written < len(data)  # then a newline ends the fragment first
        if self._torn:
            raise OSError(errno.ENOSPC, "the line was cut", self.name)

    def _is_current(self) -> bool:
        """Returns whether the open file is still the one that has the name."""
        if self._fd < 0:
            return False
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._fd))

    def close(self) -> None:
        """Gives up the file; another record opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _reopen(self) -> None:
        self.close()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.name, flags, 0o644)

    def _rotate(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process renames it now; the next record sees the new file
        if self._is_current():
            self._path.replace(self.name + ".1")
        self._reopen()  # closing the old one gives up the lock


class _Delivery:
    """A bounded queue in front of the thread that writes to *target*."""

    def __init__(self, target: _Datagrams | _RotatingFile) -> None:
        self._target = target
        self._begin()

    def _begin(self) -> None:
        """Starts anew: a forked process has neither the thread nor the identity."""
        self._pid = os.getpid()
        self._writer = uuid.uuid4().hex[:12]
        self._sequence = 0
        self.failed = 0
        self._overflowed = 0
        self._undelivered = 0  # two counters, as each is written by one thread
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def identity(self) -> dict[str, object]:
        """Returns what tells a reader which records of which process are missing."""
        if self._pid != os.getpid():
            self._begin()
        self._sequence += 1
        return {
            "pid": self._pid,
            "writer": self._writer,
            "seq": self._sequence,
            "dropped": self._overflowed + self._undelivered,
            "failed": self.failed,
        }

    def put(self, line: bytes) -> None:
        """Queues *line* without waiting; drops it when the queue is full."""
        if self._lines.qsize() >= QUEUED_RECORDS:
            self._overflowed += 1
            return
        self._lines.put(line)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._lines,), name="goodput", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Ends the thread when the queue is empty; waits for it a moment only."""
        if self._thread is not None and self._pid == os.getpid():
            self._lines.put(None)
            self._thread.join(CLOSE_SECONDS)
            self._thread = None

    def _run(self, lines: SimpleQueue[bytes | None]) -> None:
        away_since: float | None = None
        while (line := lines.get()) is not None:
            while (problem := self._problem(line)) is not None:
                now = time.monotonic()
                away_since = now if away_since is None else away_since
                if now - away_since > HOLD_SECONDS:
                    if not self._undelivered:
                        logger.warning("%s: %s; dropping", self._target.name, problem)
                    self._undelivered += 1
                    break
                time.sleep(RETRY_SECONDS)
            else:
                away_since = None
        self._target.close()

    def _problem(self, line: bytes) -> Exception | None:
        """Returns why *line* could not be written, or None when it was."""
        try:
            self._target.write(line)
        except Exception as error:  # noqa: BLE001 - the thread outlives any target
            return error
        return None


# --- Reading requests and answers; nothing of their text is kept --------------------


def _text(value: object) -> str | None:
    """Returns *value* cut to a bounded length, or None when it is no text."""
    return value[:LONGEST_TEXT] if isinstance(value, str) else None


def _count(value: object) -> int | None:
    """Returns *value* when it is a whole number that can be a count."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _part(data: object, key: str) -> dict[str, Any]:
    """Returns the object at *key*, or an empty one."""
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


_NEXT = re.compile(r"[ \t\r\n]*[{,][ \t\r\n]*")
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
_AFTER = re.compile(r"[ \t\r\n]*[,}]")


def _members(text: str) -> Iterator[tuple[str, object]]:
    """Yields the top-level members of a JSON object, up to where *text* was cut."""
    decode = json.JSONDecoder().raw_decode
    at = 0
    while (found := _NEXT.match(text, at)) is not None:
        try:
            key, at = decode(text, found.end())
            colon = _COLON.match(text, at)
            if colon is None or not isinstance(key, str):
                return
            value, at = decode(text, colon.end())
        except (ValueError, RecursionError):
            return
        if _AFTER.match(text, at) is None:
            return  # a number may go on behind a cut
        yield key, value


_LIMIT_KEYS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_REQUEST_KEYS = {"model", "stream", "stream_options", "sampling_params", *_LIMIT_KEYS}


def _request_fields(head: bytes, *, whole: bool) -> dict[str, object]:
    """Returns what the head of a request's body tells, beside the prompt."""
    told = {
        key: value
        for key, value in _members(head.decode("utf-8", "replace"))
        if key in _REQUEST_KEYS
    }
    limits = [_count(told.get(k)) for k in _LIMIT_KEYS]
    limits.append(_count(_part(told, "sampling_params").get("max_new_tokens")))
    stream = told.get("stream")
    usage = _part(told, "stream_options").get("include_usage")
    return {
        "model": _text(told.get("model")),
        "stream": stream if isinstance(stream, bool) else None,
        "include_usage": usage if isinstance(usage, bool) else None,
        "max_tokens": next((n for n in limits if n is not None), None),
        "request_read": "whole" if whole else "head",
    }


_REQUEST_UNKNOWN = {**_request_fields(b"", whole=False), "request_read": "nothing"}


class _Events:
    """Cuts a server-sent event stream into payloads, wherever its messages end."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._after_cr = False

    def feed(self, piece: bytes, *, last: bool) -> list[bytes]:
        """Returns the payloads of the events that *piece* completes."""
        if self._after_cr or b"\r" in piece:
            piece = self._without_cr(piece)
        size = len(self._buffer) + len(piece)
        if piece.endswith(b"\n\n") and not self._buffer:
            events = piece[:-2].split(b"\n\n")  # as servers send them
        else:
            events = self._completed(piece, last=last)
        if size > BUFFER_BYTES:
            longest = max(map(len, (*events, self._buffer)))
            if longest > BUFFER_BYTES:
                raise TooLargeError
        payloads = map(self._payload, events)
        return [payload for payload in payloads if payload is not None]

    def _completed(self, piece: bytes, *, last: bool) -> list[bytes]:
        searched = max(0, len(self._buffer) - 1)
        self._buffer += piece
        end = self._buffer.rfind(b"\n\n", searched)
        end = len(self._buffer) if last else end  # the last may lack its blank line
        if end < 0:
            return []
        events = bytes(self._buffer[:end]).split(b"\n\n")
        del self._buffer[: end + 2]
        return events

    def _without_cr(self, piece: bytes) -> bytes:
        """Returns *piece* with all line ends as line feeds, also one cut in two."""
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_cr = False
        if piece:
            self._after_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    @staticmethod
    def _payload(event: bytes) -> bytes | None:
        if event.startswith(b"data: ") and b"\n" not in event:
            return event[6:]
        lines = [x[5:] for x in event.split(b"\n") if x.startswith(b"data:")]
        return b"\n".join(x.removeprefix(b" ") for x in lines) if lines else None


_DELTA_TEXTS = ("content", "reasoning", "reasoning_content", "refusal", "audio")
_BLOCK_TEXTS = ("text", "thinking", "partial_json", "name")
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")
_PROMPT, _CACHED, _COMPLETION = "prompt_tokens", "cached_tokens", "completion_tokens"


class _Answer:
    """What an answer says about itself: usage, ends, errors; it keeps no text."""

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self.tokens: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.error: dict[str, str | None] | None = None
        self.done = False
        self.choices = 0
        self.engine: dict[str, float] | None = None
        self.unreadable = 0
        self._tokens_of: dict[int, int] = {}

    def read(self, payload: bytes) -> bool:
        """Returns whether *payload*, an event or a whole body, brought output."""
        if payload.startswith(b"[DONE]"):
            self.done = True
            return False
        try:
            data = json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            self.unreadable += 1
            return False
        if "model" not in self.texts:
            self._identify(data)
        if data.get("error") is not None:
            self._fail(data["error"])
        kind, choices = data.get("type"), data.get("choices")
        output = False
        if isinstance(choices, list):
            outputs = [self._choice(c) for c in choices if isinstance(c, dict)]
            output = True in outputs
        elif isinstance(kind, str):
            output = self._typed(kind, data)
        elif data.get("object") == "response":
            self._response(data)
        elif "meta_info" in data:
            output = self._native(data)
        # Before the last chunk, usage of several choices is of one of them.
        usage = data.get("usage")
        if usage and not (self._streamed and choices and self.choices > 1):
            self._use(_part(data, "usage"))
        if isinstance(data.get("metrics"), dict):
            self._measure(data["metrics"])
        return output

    def _keep(self, key: str, value: object) -> None:
        if isinstance(value, str) and value:
            self.texts[key] = value[:LONGEST_TEXT]

    def _keep_count(self, key: str, value: object) -> None:
        if (count := _count(value)) is not None:
            self.tokens[key] = count

    def _identify(self, data: dict[str, Any]) -> None:
        self._keep("model", data.get("model"))
        self._keep("id", data.get("id"))

    def _fail(self, error: object) -> None:
        """Keeps an error's type and code; its message may repeat the prompt."""
        told = error if isinstance(error, dict) else {}
        code = told.get("code")
        code = str(code)[:LONGEST_TEXT] if isinstance(code, (str, int)) else None
        self.error = {"type": _text(told.get("type")), "code": code}

    def _choice(self, choice: dict[str, Any]) -> bool:
        index = _count(choice.get("index")) or 0
        if index >= self.choices:
            self.choices = index + 1
            if self.choices > 1:
                self.tokens.pop(_COMPLETION, None)
        self._keep("finish_reason", choice.get("finish_reason"))
        if choice.get("text"):
            return True
        delta = _part(choice, "delta")
        for key in _DELTA_TEXTS:  # a loop: this is the hot path
            if delta.get(key):
                return True
        calls = delta.get("tool_calls")
        called = [_part(delta, "function_call")]
        if isinstance(calls, list):
            called += [_part(call, "function") for call in calls]
        return any(f.get("name") or f.get("arguments") for f in called)

    def _typed(self, kind: str, data: dict[str, Any]) -> bool:
        """Reads what has a `type`: the Messages and the Responses interface."""
        if kind in {"content_block_delta", "content_block_start"}:
            part = "delta" if kind == "content_block_delta" else "content_block"
            block = _part(data, part)
            return any(block.get(k) for k in _BLOCK_TEXTS)
        if kind == "message_start":
            message = _part(data, "message")
            self._identify(message)
            self._use(_part(message, "usage"))
            self.tokens.pop(_COMPLETION, None)  # so far; a cut stream has no other
        elif kind in {"message_delta", "message"}:
            whole = data if kind == "message" else _part(data, "delta")
            self._keep("finish_reason", whole.get("stop_reason"))
        elif kind == "message_stop":
            self.done = True
        elif kind == "error" and self.error is None:
            self._fail(data)
        elif kind == "response.output_item.added":
            return bool(_part(data, "item").get("name"))
        elif kind.startswith("response."):
            self._response(_part(data, "response"))
            self.done = self.done or kind in _RESPONSE_ENDS
            return kind.endswith(".delta") and bool(data.get("delta"))
        return False

    def _response(self, response: dict[str, Any]) -> None:
        """Reads the object of the Responses interface, in an event or as the body."""
        self._identify(response)
        if response.get("error") is not None:
            self._fail(response["error"])
        self._use(_part(response, "usage"))
        if response.get("status") not in {"queued", "in_progress"}:
            self._keep("finish_reason", response.get("status"))
        reason = _part(response, "incomplete_details").get("reason")
        self._keep("finish_reason", reason)

    def _native(self, data: dict[str, Any]) -> bool:
        """Reads SGLang's own interface, whose events repeat the text so far."""
        meta = _part(data, "meta_info")
        index = min(_count(data.get("index")) or 0, MOST_CHOICES)
        self.choices = max(self.choices, index + 1)
        self._identify(meta)
        self._keep("finish_reason", _part(meta, "finish_reason").get("type"))
        self._keep_count(_PROMPT, meta.get("prompt_tokens"))
        self._keep_count(_CACHED, meta.get("cached_tokens"))
        tokens = _count(meta.get("completion_tokens"))
        grew = tokens is None or tokens > self._tokens_of.get(index, 0)
        if tokens is not None:
            self._tokens_of[index] = tokens
            self.tokens[_COMPLETION] = sum(self._tokens_of.values())
        return grew and bool(data.get("text") or data.get("output_ids"))

    def _use(self, usage: dict[str, Any]) -> None:
        """Takes the token counts of any interface's `usage`."""
        cached = _count(usage.get("cache_read_input_tokens"))
        prompt = _count(usage.get("input_tokens"))
        if prompt is not None:  # Messages counts cached tokens apart, others inside
            created = _count(usage.get("cache_creation_input_tokens"))
            self.tokens[_PROMPT] = prompt + (cached or 0) + (created or 0)
        self._keep_count(_PROMPT, usage.get("prompt_tokens"))
        self._keep_count(_CACHED, cached)
        for key in ("prompt_tokens_details", "input_tokens_details"):
            self._keep_count(_CACHED, _part(usage, key).get("cached_tokens"))
        self._keep_count(_COMPLETION, usage.get("output_tokens"))
        self._keep_count(_COMPLETION, usage.get("completion_tokens"))

    def _measure(self, metrics: dict[str, Any]) -> None:
        """Keeps the engine's own times of `vllm serve --enable-per-request-metrics`."""
        self.engine = {
            key[:64]: float(value)
            for key, value in list(metrics.items())[:16]
            if isinstance(value, (int, float)) and math.isfinite(value)
        }


# --- One request ---------------------------------------------------------------------


class _Exchange:
    """Times and facts of one request; durations are seconds since its start."""

    def __init__(self, route: str, headers: dict[str, str]) -> None:
        self.route = route
        self.headers = headers
        self.start = time.time()
        self._began = time.monotonic()
        self.times: dict[str, float] = {}
        self.request = _REQUEST_UNKNOWN
        self.answer = _Answer(streamed=False)
        self.status: int | None = None
        self.streamed: bool | None = None
        self.read = "nothing"
        self.unread: str | None = None
        self.exception: str | None = None
        self.recorded = False
        self._send_wait = 0.0
        self._content_chunks = 0
        self._last_given = False
        self._head: bytearray | None = bytearray()
        self._head_is_whole = True
        self._events: _Events | None = None
        self._body: bytearray | None = None

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def received(self, message: Message) -> None:
        """Looks at what the server gave to the application."""
        if message["type"] == "http.disconnect":
            # After the last message it says no more than that the request is over.
            if not self._last_given:
                self.left()
        elif message["type"] == "http.request" and self._head is not None:
            body = message.get("body", b"")
            room = REQUEST_HEAD_BYTES - len(self._head)
            self._head += body[:room]
            self._head_is_whole = self._head_is_whole and len(body) <= room
            if not message.get("more_body", False):
                self.times["request_body_s"] = self._elapsed()
                head, self._head = bytes(self._head), None
                self.request = _request_fields(head, whole=self._head_is_whole)

    def left(self) -> None:
        """Notes that the client has gone; what is sent from now on reaches nobody."""
        self.times.setdefault("disconnect_s", self._elapsed())
        self._events = self._body = None

    def sending(self, message: Message) -> None:
        """Notes that the server is about to be given *message*."""
        if message["type"] == "http.response.body":
            self._last_given = not message.get("more_body", False)

    def sent(self, message: Message, began: float) -> None:
        """Looks at a message that the server took; *began* is when it was given."""
        now = time.monotonic()
        self._send_wait += now - began
        moment = began - self._began
        if message["type"] == "http.response.start":
            self.times["header_s"] = moment
            self.status = int(message["status"])
            self._started(message)
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            if body:
                self.times.setdefault("first_body_s", moment)
            if self._last_given:
                self.times["end_s"] = now - self._began
            self._look(body, moment)

    def _started(self, message: Message) -> None:
        headers = {bytes(k).lower(): bytes(v) for k, v in message.get("headers", ())}
        given = headers.get(b"x-request-id")
        if given:
            self.headers.setdefault("x-request-id", _latin(given))
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        self.streamed = kind == b"text/event-stream"
        self.answer = _Answer(streamed=self.streamed)
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            self.unread = "compressed"
        elif self.streamed:
            self._events, self.read = _Events(), "events"
        elif kind == b"application/json" or kind.endswith(b"+json"):
            self._body, self.read = bytearray(), "json"
        else:
            self.unread = "content_type"
        if "disconnect_s" in self.times:
            self._events = self._body = None

    def _look(self, body: bytes, moment: float) -> None:
        if self._events is not None:
            try:
                payloads = self._events.feed(body, last=self._last_given)
            except TooLargeError:
                self.stop_reading("too_large")
                return
            for payload in payloads:
                if self.answer.read(payload):
                    self._count_content(moment)
                if self.answer.done:
                    self.times.setdefault("done_s", moment)
        elif self._body is not None:
            if len(self._body) + len(body) > BUFFER_BYTES:
                self.stop_reading("too_large")
                return
            self._body += body
            if self._last_given:
                self.answer.read(bytes(self._body))

    def _count_content(self, moment: float) -> None:
        self._content_chunks += 1
        self.times.setdefault("ttft_s", moment)
        before = self.times.get("last_content_s")
        if before is not None:
            gap = moment - before
            self.times["max_gap_s"] = max(gap, self.times.get("max_gap_s", 0.0))
        self.times["last_content_s"] = moment

    def stop_reading(self, reason: str) -> None:
        """Gives up the answer's content, and what only all of it would tell."""
        self.unread = reason
        self._events = self._body = None
        self.times.pop("last_content_s", None)
        self.times.pop("max_gap_s", None)
        self.answer.tokens.clear()

    def _outcome(self) -> str:
        """Returns how the request ended; the facts it rests on are in the record."""
        left = self.times.get("disconnect_s", math.inf)
        if self.status is not None and self.status >= 400:
            return "http_error" if self.times["header_s"] <= left else "client_abort"
        if self.answer.error is not None:
            return "stream_error"
        if "done_s" in self.times or ("end_s" in self.times and left == math.inf):
            return "ok"  # also for who closes the connection right after the end mark
        if left < math.inf:
            return "client_abort"
        # A server that shuts down cancels what is left; that is no fault.
        cut = self.exception in {None, "CancelledError"}
        return "upstream_cut" if cut else "exception"

    def fields(self) -> dict[str, object]:
        """Returns the request's part of the record; docs/middleware.md explains it."""
        answer, times = self.answer, self.times
        chunks = self._content_chunks if self.streamed and not self.unread else None
        tokens, kind = answer.tokens.get(_COMPLETION), "usage"
        if tokens is None:
            tokens, kind = chunks, "none" if chunks is None else "counted"
        times["elapsed_s"] = self._elapsed()
        times["send_wait_s"] = self._send_wait
        return {
            "route": self.route,
            **self.request,
            "response_model": answer.texts.get("model"),
            "response_id": answer.texts.get("id"),
            "start": round(self.start, 6),
            **{k: round(times[k], 6) if k in times else None for k in _TIMES},
            "status": self.status,
            "outcome": self._outcome(),
            "exception": self.exception,
            "error": answer.error,
            "finish_reason": answer.texts.get("finish_reason"),
            "streamed": self.streamed,
            "choices": answer.choices or None,
            "content_chunks": chunks,
            "prompt_tokens": answer.tokens.get(_PROMPT),
            "cached_tokens": answer.tokens.get(_CACHED),
            "completion_tokens": tokens,
            "tokens_kind": kind,
            "read": self.read,
            "unread": self.unread,
            "unreadable_events": answer.unreadable,
            "engine": answer.engine,
        }


_TIMES = (
    "request_body_s",
    "header_s",
    "first_body_s",
    "ttft_s",
    "last_content_s",
    "max_gap_s",
    "done_s",
    "end_s",
    "disconnect_s",
    "elapsed_s",
    "send_wait_s",
)


def _latin(value: bytes) -> str:
    return value.decode("latin-1")[:LONGEST_TEXT]


def _names(given: Iterable[str] | None, variable: str) -> tuple[str, ...]:
    """Returns *given*, or the names in the environment's *variable*, without blanks."""
    found = os.environ.get(variable, "").split(",") if given is None else given
    return tuple(name.strip() for name in found if name.strip())


def _file_max_bytes() -> int:
    """Returns the environment's cap; a bad one there must not stop a server."""
    text = os.environ.get("GOODPUT_FILE_MAX_BYTES", "")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text:
        logger.warning("GOODPUT_FILE_MAX_BYTES %r is no number of bytes", text)
    return DEFAULT_FILE_MAX_BYTES


class GoodputMiddleware:
    """Passes every message on as it is, and records generation requests.

    Each option left out is taken from its environment variable: `socket_path` from
    GOODPUT_SOCKET, `file_path` (instead of the socket) from GOODPUT_FILE,
    `file_max_bytes` from GOODPUT_FILE_MAX_BYTES, `tenant_header` from
    GOODPUT_TENANT_HEADER, and as lists with commas `headers`, which are recorded too,
    from GOODPUT_HEADERS, and `paths` from GOODPUT_PATHS.
    """

    def __init__(
        self,
        app: App,
        *,
        socket_path: str | None = None,
        file_path: str | None = None,
        file_max_bytes: int | None = None,
        tenant_header: str | None = None,
        headers: Iterable[str] | None = None,
        paths: Iterable[str] | None = None,
    ) -> None:
        env = os.environ.get
        self._app = app
        tenant = tenant_header or env("GOODPUT_TENANT_HEADER") or "x-tenant-id"
        self._tenant = tenant.strip().lower()
        extra = [name.lower() for name in _names(headers, "GOODPUT_HEADERS")]
        wanted = {"x-request-id", self._tenant, *extra[:MOST_HEADERS]} - SECRET_HEADERS
        self._extra = tuple(name for name in extra if name in wanted)
        self._wanted = {name.encode("latin-1", "replace"): name for name in wanted}
        self._paths = frozenset(_names(paths, "GOODPUT_PATHS") or DEFAULT_PATHS)
        file = file_path or (None if socket_path else env("GOODPUT_FILE"))
        self._delivery = _Delivery(
            _RotatingFile(file, file_max_bytes or _file_max_bytes())
            if file
            else _Datagrams(socket_path or env("GOODPUT_SOCKET") or DEFAULT_SOCKET)
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Runs the application, with its messages observed when it generates."""
        exchange = self._exchange(scope)
        if exchange is None:
            await self._app(scope, receive, send)
            if scope["type"] == "lifespan":
                self.close()
            return

        async def observed_receive() -> Message:
            message = await receive()
            self._observe(exchange, exchange.received, message)
            return message

        async def observed_send(message: Message) -> None:
            self._observe(exchange, exchange.sending, message)
            began = time.monotonic()
            try:
                await send(message)
            except OSError:  # since ASGI 2.4, how a server says that nobody reads
                exchange.left()
                raise
            self._observe(exchange, exchange.sent, message, began)
            if "end_s" in exchange.times:
                self._record(exchange)

        try:
            await self._app(scope, observed_receive, observed_send)
        except BaseException as error:  # a cancelled request is no Exception
            exchange.exception = type(error).__name__
            raise
        finally:
            self._record(exchange)

    def close(self) -> None:
        """Writes what is queued, as far as a moment allows; the lifespan's end does."""
        self._delivery.close()

    def _exchange(self, scope: Message) -> _Exchange | None:
        """Returns the observation of a generation request, None for anything else."""
        try:
            if scope["type"] != "http" or scope["method"] != "POST":
                return None
            root, path = scope.get("root_path", ""), scope["path"]
            route = path[len(root) :] if root and path.startswith(root) else path
            route = route.rstrip("/")
            if route not in self._paths or SEEN in scope:
                return None
            scope[SEEN] = True
            headers = {
                self._wanted[name]: _latin(value)
                for name, value in scope["headers"]
                if name in self._wanted
            }
            return _Exchange(route, headers)
        except Exception as error:  # noqa: BLE001 - a fault in here fails no request
            self._failed(error)
            return None

    def _observe(
        self, exchange: _Exchange, step: Callable[..., None], *args: object
    ) -> None:
        try:
            step(*args)
        except Exception as error:  # noqa: BLE001 - a fault in here fails no request
            self._failed(error)
            exchange.stop_reading("failed")

    def _record(self, exchange: _Exchange) -> None:
        if exchange.recorded:
            return
        exchange.recorded = True
        try:
            headers = exchange.headers
            given = headers.get("x-request-id")
            record = {
                "format": FORMAT,
                "version": VERSION,
                **self._delivery.identity(),
                "request_id": given or uuid.uuid4().hex,
                "request_id_kind": "header" if given else "generated",
                "tenant": headers.get(self._tenant),
                "headers": {n: headers[n] for n in self._extra if n in headers},
                **exchange.fields(),
            }
            self._delivery.put(json.dumps(record, separators=(",", ":")).encode())
        except Exception as error:  # noqa: BLE001 - a fault in here fails no request
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Counts a fault of ours; logs the first, without values it may contain."""
        self._delivery.failed += 1
        if self._delivery.failed == 1:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            line = trace.tb_lineno if trace is not None else 0
            logger.warning("%s in line %d; counted", type(error).__name__, line)
