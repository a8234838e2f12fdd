from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import tail_reader
from hypothesis import given, settings
from hypothesis import strategies as st
from rotating_log import Writer, compress, line, numbers, rotate
from running_exporter import wait_for
from tail_reading import GRACE, Reading, append


@settings(max_examples=60, deadline=None)
@given(
    content=st.lists(st.binary(max_size=30), max_size=20).map(b"\n".join),
    cuts=st.lists(st.integers(0, 600), max_size=12),
    limit=st.integers(1, 700),
    restarts=st.sets(st.integers(0, 11)),
)
def test_lines_do_not_depend_on_how_they_were_written(
    content: bytes, cuts: list[int], limit: int, restarts: set[int]
) -> None:
    """Whatever the writes, the batches and the restarts: the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        reading = Reading(log)
        found = reading.poll()
        places = sorted({0, *(cut for cut in cuts if cut < len(content))})
        for index, (begin, end) in enumerate(
            zip(places, [*places[1:], len(content)], strict=True)
        ):
            append(log, content[begin:end])
            found += reading.poll(limit)
            if index in restarts:
                reading.stop()
                reading.resume()
        reading.stop()
    # Zeros at the begin of a line are what is left of a hole.
    assert found == [line.lstrip(b"\0") for line in content.split(b"\n")[:-1]]


STEPS = ("write", "half", "rotate", "late", "compress", "restart", "poll", "wait")


@settings(max_examples=100, deadline=None)
@given(copy=st.booleans(), steps=st.lists(st.sampled_from(STEPS), max_size=25))
def test_any_order_of_rotations_and_restarts_reads_each_line_once(
    steps: list[str], *, copy: bool
) -> None:
    """Lines come once through renames, late writers, copytruncate and archives."""
    folder = Path(tempfile.mkdtemp())
    log = folder / "access.log"
    writer = log.open("ab", buffering=0)
    reading = Reading(log)
    found = reading.poll()
    written = 0
    torn = b""
    for step in [*steps, "write"]:
        if torn and step in ("write", "half", "rotate", "late"):
            writer.write(torn)
            torn = b""
        if step == "write":
            writer.write(line(written := written + 1))
        elif step == "half":
            whole = line(written := written + 1)
            writer.write(whole[:9])
            torn = whole[9:]
        elif step in ("rotate", "late"):
            rotate(log, copy=copy)
            if step == "late":
                writer.write(line(written := written + 1))
            writer.close()
            writer = log.open("ab", buffering=0)
        elif step == "compress":
            compress(Path(f"{log}.2"))
        elif step == "restart":
            reading.stop()
            reading.resume()
        elif step == "wait":
            reading.now += 2 * GRACE
        else:
            found += reading.once(500)[0]
    writer.write(torn)
    writer.close()
    found += reading.poll()
    reading.stop()
    shutil.rmtree(folder)
    assert numbers(found) == list(range(1, written + 1))
    assert reading.lost == {}


def _went_on(state: Path, counted: int) -> bool:
    return tail_reader.load(state).lines > counted


def test_a_killed_reader_counts_each_line_once(tmp_path: Path) -> None:
    """Totals and position are one write, so no kill loses a line or doubles one.

    Of nine readers every other one is killed as soon as it has counted something,
    the rest at any moment, while a writer goes on and its log is rotated three times.
    """
    log, state = tmp_path / "access.log", tmp_path / "state"
    draw = random.Random(7)
    with Writer(log, rate=5000, seconds=600.0) as writer:
        for turn in range(9):
            counted = tail_reader.load(state).lines
            reader = tail_reader.started(log, state, seconds=0.01, limit=1 << 16)
            if turn % 2 == 0:
                wait_for(partial(_went_on, state, counted))
            if turn in (2, 3, 6):
                rotate(log, compress_after=2)
                writer.reopen()
            time.sleep(draw.uniform(0.0, 0.3))
            reader.kill()
            assert reader.wait(10) == -signal.SIGKILL
    Path(f"{state}-stop").touch()
    assert tail_reader.started(log, state).wait(60) == 0
    live = log.read_bytes() or Path(f"{log}.1").read_bytes()
    written = numbers(live.splitlines())[-1]
    assert Path(f"{log}.3.gz").exists()
    totals = tail_reader.load(state)
    assert (totals.lines, totals.total, totals.squares) == tail_reader.expected(written)
    assert totals.lost == 0
