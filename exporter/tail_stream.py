"""Lines from a pipe, such as standard input."""

from __future__ import annotations

import os
import select
import threading
from collections import deque

from analyzer.gateways.framing import Framing, FramingState, Unframer
from exporter.tail_batch import BATCH_BYTES, MAX_LINE_BYTES, Batch, Stats
from exporter.tail_lines import LineSplitter

READ_BYTES = 64 << 10
QUEUE_BYTES = 16 << 20
STOP_SECONDS = 2.0


class StreamSource:
    """A line source over *descriptor*, which stays the caller's to close.

    A thread reads ahead, so that the writer does not wait for our next poll; at
    *queue_bytes* it stops, and then the writer does wait: nothing is dropped. A pipe
    has no position: what was taken from it and not counted before a kill is gone.
    `ended` comes with the last lines, also one without a newline.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        framing: str = Framing.AUTO,
        max_line_bytes: int = MAX_LINE_BYTES,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._descriptor = descriptor
        self._splitter = LineSplitter(max_line_bytes)
        self._unframer = Unframer(
            FramingState(Framing(framing)), max_message_bytes=max_line_bytes
        )
        self._queue_bytes = queue_bytes
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._problem = ""
        self._stopping = False
        self._changed = threading.Condition()
        self._closing, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="log-pipe", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # The descriptor may be shared, so it is not made non-blocking.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._closing, select.POLLIN)
        problem = ""
        try:
            while self._has_room():
                ready = [descriptor for descriptor, _ in poll.poll()]
                if self._closing in ready:
                    return
                piece = os.read(self._descriptor, READ_BYTES)
                if not piece:
                    break
                with self._changed:
                    self._pieces.append(piece)
                    self._size += len(piece)
        except OSError as error:
            problem = error.strerror or str(error)
        with self._changed:
            self._ended = True
            self._problem = problem

    def _has_room(self) -> bool:
        """Waits until the queue is not full; returns False when it is time to stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or self._size < self._queue_bytes
            )
            return not self._stopping

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the lines that have come, of about *limit_bytes* at most."""
        data = []
        left = limit_bytes
        with self._changed:
            while self._pieces and left > 0:
                data.append(self._pieces.popleft())
                self._size -= len(data[-1])
                left -= len(data[-1])
            self._changed.notify_all()
            more = bool(self._pieces)
            ended = self._ended and not more
            lag, problem = self._size, self._problem
        lines = self._splitter.feed(b"".join(data)) if data else []
        if ended:
            lines += self._splitter.finish()
        found = self._unframer.feed(lines)
        messages, errors, too_long = found.messages, found.errors, found.too_long
        if ended:
            flushed = self._unframer.flush()
            messages += flushed.messages
            errors += flushed.errors
            too_long += flushed.too_long
        stats = Stats(
            too_long=too_long + self._splitter.take_too_long(),
            misframed=found.misframed,
            lag_bytes=lag,
            problems={"stdin": problem} if problem else {},
        )
        return Batch(messages, None, stats, more, ended, errors)

    def close(self) -> None:
        """Ends the thread; the descriptor stays open."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        os.write(self._wake, b"x")
        self._thread.join(STOP_SECONDS)
        for descriptor in (self._closing, self._wake):
            os.close(descriptor)
