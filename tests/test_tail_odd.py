"""Log files that cannot be read for a while, have two names, holes or odd archives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rotating_log import line, numbers, rotate
from tail_reading import GRACE, Reading, append, lines

from exporter.tail import Tail

NOBODY = 65534


@contextmanager
def _as_nobody(folder: Path) -> Iterator[None]:
    """Reads as a user whom permissions bind, which they do not bind root.

    All folders above are opened to that user meanwhile; pytest makes them private.
    """
    if os.geteuid() != 0:
        yield
        return
    modes = {path: path.stat().st_mode for path in (folder, *folder.parents)}
    for path, mode in modes.items():
        path.chmod(mode | 0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_new_file_that_is_not_readable_yet_is_read_from_its_begin(
    tmp_path: Path,
) -> None:
    """The old one is drained meanwhile; lines come once the mode is put right."""
    log = tmp_path / "access.log"
    append(log, lines(1, 2))
    reading = Reading(log)
    with _as_nobody(tmp_path):
        assert numbers(reading.poll()) == [1, 2]
    with log.open("ab", buffering=0) as late:
        rotate(log)
        late.write(line(3))
        append(log, line(4))
        log.chmod(0)
    with _as_nobody(tmp_path):
        assert numbers(reading.poll()) == [3]
        assert reading.poll() == []
        assert reading.last.problems == {str(log): "Permission denied"}
        reading.now += 2 * GRACE
        assert reading.poll() == []
    rotate(log)  # and it is rotated before anybody could read it
    append(log, line(5))
    Path(f"{log}.1").chmod(0o644)
    with _as_nobody(tmp_path):
        assert sorted(numbers(reading.poll())) == [4, 5]
        assert reading.last.problems == {}
    assert reading.lost == {}


def test_a_file_unreadable_at_first_is_read_from_where_it_ended_then(
    tmp_path: Path,
) -> None:
    """With `start="end"`, its size at the first look is where reading begins."""
    log = tmp_path / "access.log"
    append(log, lines(1, 2))
    append(log, line(3)[:50])
    log.chmod(0)
    reading = Reading(log, start="end")
    with _as_nobody(tmp_path):
        assert reading.poll() == []
        assert reading.last.problems == {str(log): "Permission denied"}
    log.chmod(0o644)
    append(log, line(3)[50:])
    append(log, line(4))
    with _as_nobody(tmp_path):
        assert numbers(reading.poll()) == [4]  # 3 had begun before
        assert reading.last.problems == {}


@pytest.mark.parametrize("away", [False, True])
def test_the_hole_before_a_writer_without_append_is_passed(
    tmp_path: Path, *, away: bool
) -> None:
    """Truncated under it, it writes on at its old place; the zeros are no line."""
    log = tmp_path / "access.log"
    with log.open("wb", buffering=0) as writer:
        reading = Reading(log)
        written = 0
        for _ in range(3):
            writer.write(lines(written + 1, written + 100))
            written += 100
            assert numbers(reading.poll()) == list(range(written - 99, written + 1))
            if away:
                reading.stop()
            os.truncate(log, 0)
            writer.write(line(written := written + 1))
            if away:
                reading.resume()
            assert numbers(reading.poll()) == [written]
            writer.write(line(written := written + 1))
            assert numbers(reading.poll()) == [written]


def test_the_hole_before_a_line_that_comes_in_two_parts_is_passed(
    tmp_path: Path,
) -> None:
    """The zeros were read with its begin; the end, which holds none, completes it."""
    log = tmp_path / "access.log"
    log.touch()
    reading = Reading(log)
    append(log, b"\0" * 100 + line(1)[:9])
    assert numbers(reading.poll()) == []
    append(log, line(1)[9:] + line(2))
    assert numbers(reading.poll()) == [1, 2]


@pytest.mark.parametrize("away", [False, True])
def test_a_file_renamed_to_another_matching_name_is_not_read_again(
    tmp_path: Path, *, away: bool
) -> None:
    """Whoever renames by hand names as they like; lines under both names come once."""
    log = tmp_path / "access.log"
    append(log, lines(1, 3))
    reading = Reading(tmp_path / "*.log*")
    assert numbers(reading.poll()) == [1, 2, 3]
    if away:
        reading.stop()
    log.rename(tmp_path / "access.log_backup")
    append(tmp_path / "access.log_backup", line(4))
    append(log, line(5))
    if away:
        reading.resume()
    assert sorted(numbers(reading.poll())) == [4, 5]
    append(tmp_path / "access.log_backup", line(6))
    append(log, line(7))
    assert sorted(numbers(reading.poll())) == [6, 7]
    assert reading.lost == {}


def test_two_names_of_one_file_are_read_once(tmp_path: Path) -> None:
    """Symbolic and hard links that match beside the file give nothing twice."""
    log = tmp_path / "b.log"
    append(log, lines(1, 2))
    (tmp_path / "a.log").symlink_to(log)
    (tmp_path / "c.log").hardlink_to(log)
    reading = Reading(tmp_path / "*.log")
    assert numbers(reading.poll()) == [1, 2]
    append(log, line(3))
    assert numbers(reading.poll()) == [3]


@pytest.mark.parametrize("away", [False, True])
def test_container_logs_follow_kubelet_and_end_with_the_pod(
    tmp_path: Path, *, away: bool
) -> None:
    """Rotated files lie beside the link's target; a deleted pod's files are let go."""
    folder, links = tmp_path / "pods" / "web", tmp_path / "containers"
    folder.mkdir(parents=True)
    links.mkdir()
    log = folder / "0.log"
    reading = Reading(links / "*.log")
    assert reading.poll() == []
    append(log, lines(1, 2))
    (links / "web.log").symlink_to(log)
    assert numbers(reading.poll()) == [1, 2]
    if away:
        reading.stop()
    append(log, line(3))
    log.rename(folder / "0.log.20261129-141048")
    append(log, line(4))
    log.rename(folder / "0.log.20261129-141058")
    append(log, line(5))
    if away:
        reading.resume()
    assert numbers(reading.poll()) == [3, 4, 5]
    append(log, line(6)[:-1])
    for path in (*folder.iterdir(), links / "web.log"):
        path.unlink()
    assert (reading.poll(), reading.open_files) == ([], 3)
    reading.now += 2 * GRACE
    assert numbers(reading.poll()) == [6]  # no newline will come any more
    assert (reading.poll(), reading.open_files, reading.lost) == ([], 0, {})


def test_a_rotated_file_of_a_compression_we_cannot_read_is_told(tmp_path: Path) -> None:
    """Its lines are lost, once, and the files after it are read."""
    log = tmp_path / "access.log"
    append(log, lines(1, 2))
    reading = Reading(log)
    assert numbers(reading.poll()) == [1, 2]
    rotate(log)
    append(log, line(3))
    rotate(log)
    Path(f"{log}.1").rename(f"{log}.1.zst")
    append(log, line(4))
    assert numbers(reading.poll()) == [4]
    assert reading.poll() == []
    assert reading.lost == {"unknown_archive": 1}


def test_a_pattern_added_later_begins_at_the_end_of_what_is_there(
    tmp_path: Path,
) -> None:
    """A changed configuration goes on with the old log and begins with the new one."""
    old, new = tmp_path / "old.log", tmp_path / "new.log"
    append(old, line(1))
    append(new, line(2))
    tail = Tail(str(old))
    position = tail.poll().position
    tail.close()
    append(old, line(3))
    tail = Tail([str(old), str(new)], position=position)
    assert numbers(list(tail.poll().lines)) == [3]
    append(new, line(4))
    assert numbers(list(tail.poll().lines)) == [4]
    tail.close()


def test_neither_start_nor_framing_take_any_other_word() -> None:
    """A slip in a caller is an error, not a default."""
    with pytest.raises(ValueError, match="end or beginning"):
        Tail("log", start="begin")
    with pytest.raises(ValueError, match="crio"):
        Tail("log", framing="crio")
