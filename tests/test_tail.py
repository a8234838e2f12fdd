from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from rotating_log import line, numbers, rotate
from tail_reading import GRACE, Reading, append, lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Returns the path of a log with the lines 1 to 3."""
    path = tmp_path / "access.log"
    append(path, lines(1, 3))
    return path


def test_appended_lines_come_in_order_and_once(log: Path) -> None:
    """Each poll returns what was appended since the last, without newlines."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    append(log, lines(4, 5))
    append(log, lines(6, 6))
    assert numbers(reading.poll()) == [4, 5, 6]
    assert reading.poll() == []
    assert (reading.total.rotations, reading.lost) == (0, {})


def test_a_small_limit_leaves_lines_for_the_next_poll(log: Path) -> None:
    """A full batch says that there is more and how much; all of it comes."""
    append(log, lines(4, 100))
    reading = Reading(log)
    found, more = reading.once(1000)
    assert more
    assert reading.last.lag_bytes == len(lines(1, 100)) - 1000
    assert numbers([*found, *reading.poll(1000)]) == list(range(1, 101))
    assert reading.last.lag_bytes == 0


def test_an_unfinished_line_waits_for_its_newline(log: Path) -> None:
    """Half a line is not passed on, also when the reader restarts meanwhile."""
    reading = Reading(log, start="end")
    assert reading.poll() == []
    append(log, line(4)[:100])
    assert reading.poll() == []
    reading.stop()
    reading.resume()
    append(log, line(4)[100:-1])
    assert reading.poll() == []
    append(log, b"\n" + line(5)[:7])
    assert numbers(reading.poll()) == [4]


def test_a_renamed_file_is_drained_until_its_writer_reopens(log: Path) -> None:
    """Lines that a writer appends after the rename come before those of the new file.

    The old file is closed once a newer one has content and the grace has passed.
    """
    reading = Reading(log)
    with log.open("ab", buffering=0) as writer:
        assert numbers(reading.poll()) == [1, 2, 3]
        log.rename(f"{log}.1")
        writer.write(line(4))
        assert numbers(reading.poll()) == [4]
        log.touch()
        reading.now += 10 * GRACE
        writer.write(line(5))
        assert numbers(reading.poll()) == [5]
        reading.now += 10 * GRACE
        assert reading.poll() == []
        assert reading.open_files == 2  # the new one is empty
        writer.write(line(6))
        append(log, lines(7, 8))
    assert numbers(reading.poll()) == [6, 7, 8]
    reading.now += 2 * GRACE
    assert reading.poll() == []
    assert reading.open_files == 1
    assert (reading.total.rotations, reading.lost) == (1, {})


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("compress_after", [0, 1, 2])
def test_four_rotations_between_two_polls_lose_nothing(
    log: Path, compress_after: int, *, away: bool
) -> None:
    """All files in between are read, old to new, also those that were compressed."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    if away:
        reading.stop()
    for first in (4, 24, 44, 64):
        append(log, lines(first, first + 19))
        rotate(log, compress_after=compress_after)
    append(log, lines(84, 90))
    if away:
        reading.resume()
    assert numbers(reading.poll(1000)) == list(range(4, 91))
    assert reading.poll() == []
    assert (reading.total.rotations, reading.lost) == (4, {})


def test_files_deleted_unseen_count_as_a_loss(log: Path) -> None:
    """Where the file read last is gone but rotated ones are there, a gap is told."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    reading.stop()
    for first in (4, 5, 6):
        append(log, lines(first, first))
        rotate(log)
    Path(f"{log}.3").unlink()
    append(log, lines(7, 7))
    reading.resume()
    assert numbers(reading.poll()) == [5, 6, 7]
    assert reading.lost["file_gone"] + reading.lost["rotated_out"] == 1


@pytest.mark.parametrize("away", [False, True])
def test_copytruncate_is_read_on_from_the_copy(log: Path, *, away: bool) -> None:
    """Lines not read before the truncation come from the copy, once each."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    if away:
        reading.stop()
    append(log, lines(4, 6))
    rotate(log, copy=True)
    append(log, lines(7, 8))
    if away:
        reading.resume()
    assert numbers(reading.poll()) == [4, 5, 6, 7, 8]
    rotate(log, copy=True)
    assert reading.poll() == []
    append(log, lines(9, 9))
    assert numbers(reading.poll()) == [9]
    assert reading.lost == {}


def test_a_copy_seen_before_the_truncation_is_not_read(log: Path) -> None:
    """Between the two steps of copytruncate the copy holds the same lines."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    append(log, line(4))
    shutil.copyfile(log, f"{log}.1")
    assert numbers(reading.poll()) == [4]
    os.truncate(log, 0)
    assert reading.poll() == []
    append(log, line(5))
    assert numbers(reading.poll()) == [5]
    assert (reading.total.truncations, reading.lost) == (1, {})


@pytest.mark.parametrize(
    "names",
    [
        ("access.log-20261128", "access.log-20261129"),
        ("access.log.20261129-141048", "access.log.20261129-151048"),
        ("access-2026-11-28T14-10-48.123.log", "access-2026-11-29T14-10-48.001.log"),
        ("access.log.1764425448", "access.log.1764425449"),
    ],
)
@pytest.mark.parametrize("away", [False, True])
def test_files_rotated_to_dated_names_are_found(
    log: Path, names: tuple[str, str], *, away: bool
) -> None:
    """The names of logrotate, kubelet and lumberjack sort from old to new."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    if away:
        reading.stop()
    for number, name in enumerate(names, 4):
        append(log, line(number))
        log.rename(log.with_name(name))
    append(log, line(6))
    if away:
        reading.resume()
    assert numbers(reading.poll()) == [4, 5, 6]
    assert (reading.total.rotations, reading.lost) == (2, {})


def test_a_damaged_archive_gives_what_can_be_read_and_counts(log: Path) -> None:
    """The rest of a compressed file that is cut is lost, and the next is read."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    reading.stop()
    append(log, lines(4, 400))
    rotate(log, compress_after=1)
    archive = Path(f"{log}.1.gz")
    os.truncate(archive, archive.stat().st_size - 200)
    append(log, lines(401, 402))
    reading.resume()
    found = [text for text in reading.poll() if text.endswith(b"}")]
    assert numbers(found[-2:]) == [401, 402]
    assert numbers(found) == [*range(4, len(found) + 2), 401, 402]
    assert reading.lost == {"damaged_archive": 1}


def test_a_truncated_file_is_read_from_its_begin(log: Path) -> None:
    """A truncation without a copy is counted; what is written then is read."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    os.truncate(log, 0)
    append(log, lines(4, 5))
    assert numbers(reading.poll()) == [4, 5]
    assert (reading.total.truncations, reading.lost) == (1, {})


def test_truncation_of_unread_lines_counts_as_a_loss(log: Path) -> None:
    """Lines seen but not read when the file is cut are lost, and that is told."""
    append(log, lines(4, 100))
    reading = Reading(log)
    assert reading.once(1000)[1]
    os.truncate(log, 0)
    append(log, lines(101, 101))
    assert numbers(reading.poll()) == [101]
    assert (reading.total.truncations, reading.lost) == (1, {"truncated": 1})


def test_truncation_within_a_line_counts_its_half_as_lost(log: Path) -> None:
    """The begin of a line, whose end can never come, is not glued to another line."""
    append(log, line(4)[:50])
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    assert reading.last.lag_bytes == 0
    os.truncate(log, 0)
    append(log, lines(5, 5))
    assert numbers(reading.poll()) == [5]
    assert reading.lost == {"torn_line": 1}


@pytest.mark.parametrize("away", [False, True])
def test_a_file_that_regrew_beyond_the_offset_is_noticed(
    log: Path, *, away: bool
) -> None:
    """Other content at the same place is another file, though it is longer."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    if away:
        reading.stop()
    os.truncate(log, 0)
    append(log, lines(4, 20))
    if away:
        reading.resume()
    assert numbers(reading.poll()) == list(range(4, 21))


def test_a_file_replaced_by_another_of_the_same_name(log: Path) -> None:
    """The old file's unread lines come first, though it has no name any more."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    append(log, lines(4, 5))
    new = log.with_name("new")
    append(new, lines(6, 7))
    new.replace(log)
    assert numbers(reading.poll()) == [4, 5, 6, 7]
    assert (reading.total.rotations, reading.lost) == (1, {})


def test_a_file_replaced_while_away_is_read_from_its_begin(log: Path) -> None:
    """An inode used again does not mislead; that the old file is gone is told."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    reading.stop()
    log.unlink()
    append(log, lines(4, 9))
    reading.resume()
    assert numbers(reading.poll()) == [4, 5, 6, 7, 8, 9]
    assert reading.lost == {"file_gone": 1}


@pytest.mark.parametrize("away", [False, True])
def test_a_line_that_is_too_long_is_counted_in_bounded_memory(
    log: Path, *, away: bool
) -> None:
    """It is dropped as it comes, once, also over a restart; its neighbours stay."""
    reading = Reading(log, max_line_bytes=1 << 16)
    append(log, b"y" * (8 << 20))
    tracemalloc.start()
    found = reading.poll()
    append(log, b"z" * (8 << 20))
    if away:
        reading.stop()
        reading.resume()
    found += reading.poll()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    append(log, b"\n" + lines(4, 4))
    assert numbers(found + reading.poll()) == [1, 2, 3, 4]
    assert reading.total.too_long == 1
    # The test's own 8 MiB of text, and some chunks.
    assert peak < (8 << 20) + (3 << 20)


def test_bytes_that_are_no_text_are_passed_on(log: Path) -> None:
    """Invalid UTF-8, NUL and carriage return reach the parser as they are."""
    reading = Reading(log, start="end")
    reading.poll()
    append(log, b"\xff\xfe\x80 \xc3\n a\0b\r\n\n")
    assert reading.poll() == [b"\xff\xfe\x80 \xc3", b" a\0b\r", b""]
