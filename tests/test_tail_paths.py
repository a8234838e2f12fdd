from __future__ import annotations

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


@pytest.mark.parametrize("away", [False, True])
def test_a_symbolic_link_that_is_pointed_elsewhere(
    tmp_path: Path, *, away: bool
) -> None:
    """Unread lines of the old target come first, then all of the new one."""
    log, old, new = tmp_path / "log", tmp_path / "a.log", tmp_path / "b.log"
    append(old, lines(1, 2))
    log.symlink_to(old)
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2]
    if away:
        reading.stop()
    append(old, lines(3, 4))
    append(new, lines(5, 6))
    swap = tmp_path / "swap"
    swap.symlink_to(new)
    swap.replace(log)
    if away:
        reading.resume()
    assert numbers(reading.poll()) == [3, 4, 5, 6]
    assert reading.lost == {}


def test_a_pattern_reads_new_files_from_their_begin(log: Path) -> None:
    """What is there at first is read from its end; what appears later, whole."""
    reading = Reading(log.with_name("*.log"), start="end")
    assert reading.poll() == []
    append(log.with_name("new.log"), lines(10, 11))
    append(log, lines(4, 4))
    assert sorted(numbers(reading.poll())) == [4, 10, 11]
    rotate(log)
    append(log, lines(5, 5))
    assert numbers(reading.poll()) == [5]


def test_a_pattern_that_matches_rotated_files_reads_no_line_twice(log: Path) -> None:
    """Rotated names belong to the log they come from, compressed or not."""
    reading = Reading(log.with_name("access*"), start="end")
    assert reading.poll() == []
    found = []
    for first in (4, 6, 8):
        append(log, lines(first, first + 1))
        rotate(log, compress_after=2)
        found += numbers(reading.poll())
    assert found == [4, 5, 6, 7, 8, 9]


def test_files_beyond_the_limit_wait_for_their_turn(tmp_path: Path) -> None:
    """With too many files, that is told, and no more than the limit are open."""
    for name in ("a", "b", "c"):
        append(tmp_path / f"{name}.log", lines(1, 1))
    reading = Reading(tmp_path / "*.log", max_files=2)
    assert numbers(reading.poll()) == [1, 1]
    assert reading.open_files == 2
    assert reading.last.problems == {str(tmp_path / "c.log"): "too many open files"}
    (tmp_path / "a.log").unlink()
    assert reading.poll() == []
    reading.now += 2 * GRACE
    found = reading.poll() + reading.poll()
    assert numbers(found) == [1]
    assert str(tmp_path / "c.log") not in reading.last.problems


def test_many_rotated_files_are_read_with_few_open(log: Path) -> None:
    """Rotations in between do not open more files than the limit allows."""
    reading = Reading(log, max_files=2)
    assert numbers(reading.poll()) == [1, 2, 3]
    for number in range(4, 12):
        rotate(log)
        append(log, line(number))
    found = []
    for _ in range(12):
        found += reading.poll()
        assert reading.open_files <= 2
        reading.now += 2 * GRACE
    assert numbers(found) == list(range(4, 12))
    assert (reading.last.problems, reading.lost) == ({}, {})


def test_a_missing_file_that_appears_is_read_whole(tmp_path: Path) -> None:
    """Until then the problem is told; the folder may be missing too."""
    log = tmp_path / "later" / "access.log"
    reading = Reading(log, start="end")
    assert reading.poll() == []
    assert reading.last.problems == {str(log): "No such file or directory"}
    log.parent.mkdir()
    append(log, lines(1, 2))
    assert numbers(reading.poll()) == [1, 2]
    assert reading.last.problems == {}


def test_a_folder_in_place_of_the_file_is_told_and_outlived(log: Path) -> None:
    """The lines before it and those after it come, and the problem goes away."""
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2, 3]
    append(log, lines(4, 4))
    log.unlink()
    log.mkdir()
    assert numbers(reading.poll()) == [4]
    assert reading.last.problems == {str(log): "not a regular file"}
    log.rmdir()
    append(log, lines(5, 6))
    assert numbers(reading.poll()) == [5, 6]
    assert (reading.last.problems, reading.lost) == ({}, {})
