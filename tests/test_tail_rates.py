"""Logs that are rotated while somebody writes to them as fast as a busy gateway."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from rotating_log import Writer, line, number, numbers, rotate

from exporter.tail import Tail

SECONDS = 2.5
ROTATIONS = 4
LATE_SECONDS = 0.3


class _Rotating(threading.Thread):
    """Rotates four times while the writer writes; it reopens 300 ms late each time."""

    def __init__(self, writer: Writer, *, compress_after: int, copy: bool) -> None:
        super().__init__()
        self._writer = writer
        self._compress_after = compress_after
        self._copy = copy

    def run(self) -> None:
        for _ in range(ROTATIONS):
            late = 0.0 if self._copy else LATE_SECONDS
            time.sleep(SECONDS / (ROTATIONS + 1) - late)
            rotate(
                self._writer.path, compress_after=self._compress_after, copy=self._copy
            )
            if not self._copy:
                time.sleep(late)
                self._writer.reopen()


def _read(
    log: Path, *, rate: int, behind: bool, compress_after: int = 0, copy: bool = False
) -> tuple[list[bytes], int, Counter[str], int]:
    """Returns the lines read, how many were written, the losses and truncations."""
    log.touch()
    tail = Tail(str(log))
    tail.poll()
    found: list[bytes] = []
    lost: Counter[str] = Counter()
    truncations = 0
    with Writer(log, rate=rate, seconds=SECONDS) as writer:
        rotating = _Rotating(writer, compress_after=compress_after, copy=copy)
        rotating.start()
        last = False
        while not last:
            last = writer.process.poll() is not None and not rotating.is_alive()
            time.sleep(0.05)
            if behind and not last:
                continue
            more = True
            while more:
                batch = tail.poll()
                found += batch.lines
                lost += Counter(batch.stats.lost)
                truncations += batch.stats.truncations
                more = batch.more
        written = writer.written()
    tail.close()
    return found, written, lost, truncations


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1_000, 10_000, 40_000])
def test_a_writer_that_reopens_late_loses_no_line(tmp_path: Path, rate: int) -> None:
    """Four rotations, each noticed by the writer 300 ms late: 0 lost, 0 twice."""
    found, written, lost, _ = _read(tmp_path / "a.log", rate=rate, behind=False)
    assert numbers(found) == list(range(1, written + 1))
    assert lost == {}


@pytest.mark.slow
@pytest.mark.parametrize("compress_after", [0, 2])
def test_a_reader_four_rotations_behind_loses_no_line(
    tmp_path: Path, compress_after: int
) -> None:
    """All is read after the fact, in order, also what has been compressed."""
    found, written, lost, _ = _read(
        tmp_path / "a.log", rate=10_000, behind=True, compress_after=compress_after
    )
    assert numbers(found) == list(range(1, written + 1))
    assert lost == {}


@pytest.mark.slow
@pytest.mark.parametrize("behind", [False, True])
def test_copytruncate_loses_only_what_is_on_no_disk(
    tmp_path: Path, *, behind: bool
) -> None:
    """Lines written between copy and truncation may be gone; all others come once."""
    log = tmp_path / "a.log"
    found, _, _, truncations = _read(log, rate=10_000, behind=behind, copy=True)
    whole = [text for text in found if line(_number(text)) == text + b"\n"]
    read = Counter(map(number, whole))
    on_disk = {
        _number(text)
        for path in tmp_path.glob("a.log*")
        if path.name != "a.log-count"
        for text in path.read_bytes().splitlines()
        if line(_number(text)) == text + b"\n"
    }
    assert truncations == ROTATIONS
    assert max(read.values()) == 1
    assert on_disk <= read.keys()


def _number(text: bytes) -> int:
    """Returns the number of a line that may be torn, 0 when it cannot be seen."""
    digits = text.removeprefix(b'{"n":').partition(b",")[0]
    return int(digits) if digits.isdigit() else 0
