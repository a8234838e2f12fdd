"""Lines that come through a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rotating_log import line, numbers
from running_exporter import wait_for
from tail_reading import lines

from exporter.tail_batch import Batch
from exporter.tail_stream import StreamSource


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Returns both ends of a pipe; the second may be closed by the test."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def _all(source: StreamSource) -> list[Batch]:
    """Polls until the source has ended."""
    batches: list[Batch] = []

    def ended() -> bool:
        batches.append(source.poll())
        return batches[-1].ended

    wait_for(ended)
    return batches


def _lines(batches: list[Batch]) -> list[bytes]:
    return [line for batch in batches for line in batch.lines]


def test_lines_come_as_they_are_written_and_the_last_at_the_end(
    pipe: tuple[int, int],
) -> None:
    """Half a line waits for its newline, or for the end of the pipe."""
    reading, writing = pipe
    source = StreamSource(reading)
    os.write(writing, line(1) + line(2)[:9])
    found: list[bytes] = []

    def first() -> bool:
        found.extend(source.poll().lines)
        return bool(found)

    wait_for(first)
    assert numbers(found) == [1]
    os.write(writing, line(2)[9:] + line(3)[:-1])
    os.close(writing)
    batches = _all(source)
    assert numbers(_lines(batches)) == [2, 3]
    assert batches[-1].position is None
    assert source.poll().lines == []
    source.close()


def test_a_full_queue_makes_the_writer_wait_and_drops_nothing(
    pipe: tuple[int, int],
) -> None:
    """Ten times the queue's bytes come whole, with no more than the queue kept."""
    reading, writing = pipe
    source = StreamSource(reading, queue_bytes=100_000)
    text = lines(1, 3_000)

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(text)

    thread = threading.Thread(target=write)
    thread.start()
    wait_for(lambda: source._size >= 100_000)
    assert thread.is_alive()
    batches = _all(source)
    thread.join()
    assert numbers(_lines(batches)) == list(range(1, 3_001))
    assert max(batch.stats.lag_bytes for batch in batches) < 200_000
    source.close()


def test_a_limit_leaves_lines_for_the_next_poll(pipe: tuple[int, int]) -> None:
    """It says that there is more, and how much."""
    reading, writing = pipe
    source = StreamSource(reading)
    with os.fdopen(writing, "wb") as file:
        file.write(lines(1, 1_000))
    wait_for(lambda: source._ended)
    batch = source.poll(1)
    assert batch.more
    assert not batch.ended
    assert batch.stats.lag_bytes > 0
    assert numbers([*batch.lines, *_lines(_all(source))]) == list(range(1, 1_001))
    source.close()


def test_framed_lines_lose_their_framing(pipe: tuple[int, int]) -> None:
    """Also a part whose end never comes, and a line that is too long is counted."""
    reading, writing = pipe
    source = StreamSource(reading, max_line_bytes=100)
    with os.fdopen(writing, "wb") as file:
        file.write(b"2026-11-29T14:10:48Z stdout P two \n")
        file.write(b"2026-11-29T14:10:48Z stdout F parts\n")
        file.write(b"2026-11-29T14:10:48Z stdout F %s\n" % (b"x" * 200))
        file.write(b"2026-11-29T14:10:48Z stdout P no end")
    batches = _all(source)
    assert _lines(batches) == [b"two parts", b"no end"]
    assert sum(batch.stats.too_long for batch in batches) == 1
    source.close()


def test_closing_ends_the_thread_and_leaves_the_pipe_open(
    pipe: tuple[int, int],
) -> None:
    """Whether it waits for the writer or for room, it ends at once."""
    reading, writing = pipe
    waiting = StreamSource(reading)
    waiting.close()
    assert not waiting._thread.is_alive()
    full = StreamSource(reading, queue_bytes=1)
    os.write(writing, b"x")
    wait_for(lambda: full._size == 1)
    full.close()
    assert not full._thread.is_alive()
    os.write(writing, b"y")
    assert os.read(reading, 10) == b"y"
    os.close(writing)


def test_standard_input_may_be_a_pipe_a_file_or_nothing(tmp_path: Path) -> None:
    """What a shell gives a program as standard input is read to its end."""
    program = (
        "import sys, time\n"
        "from exporter.tail_stream import StreamSource\n"
        "source, found, ended = StreamSource(0), [], False\n"
        "while not ended:\n"
        "    batch = source.poll()\n"
        "    found += batch.lines\n"
        "    ended = batch.ended\n"
        "    time.sleep(0.01)\n"
        "source.close()\n"
        "print(len(found))\n"
    )
    log = tmp_path / "log"
    log.write_bytes(lines(1, 2))
    for command, expected in (
        ('printf \'a\\nb\\nc\' | "$0" -c "$1"', "3"),
        (f'"$0" -c "$1" <{log}', "2"),
        ('"$0" -c "$1" </dev/null', "0"),
    ):
        done = subprocess.run(
            ["sh", "-c", command, sys.executable, program],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.stdout.strip(), done.returncode) == (expected, 0), done.stderr
