"""Files of targets: what is read when, and what stays when a file cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

from analyzer.config_discovery import FileSd
from analyzer.sources.target_files import MAX_FILES, TargetFiles
from analyzer.targets import Found

REFRESH = 30.0


def follow(*paths: Path | str) -> TargetFiles:
    """Follows files that are refreshed every 30 seconds."""
    return TargetFiles(FileSd(tuple(map(str, paths)), refresh=REFRESH))


def write(path: Path, *addresses: str) -> None:
    """Writes a file of targets and puts it in the place of what was there."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(f"[{{targets: [{', '.join(addresses)}]}}]\n")
    temporary.replace(path)


def addresses(files: TargetFiles) -> list[str]:
    """Returns the addresses of all targets."""
    return [found.address for found in files.found]


def reasons(files: TargetFiles, now: float) -> list[str]:
    """Looks once and returns the reasons of the failures to count."""
    return [fault.reason for fault in files.look(now).faults]


def test_a_replaced_file_is_read_at_the_next_look(tmp_path: Path) -> None:
    """Between refreshes a look reads what is another file, and nothing else."""
    path = tmp_path / "t.yml"
    write(path, "a:1")
    files = follow(path)
    assert files.look(0.0).changed
    assert addresses(files) == ["a:1"]
    assert not files.look(2.0).changed
    write(path, "b:1", "c:1")
    assert files.look(4.0).changed
    assert addresses(files) == ["b:1", "c:1"]
    assert not files.look(6.0).changed


def test_a_file_that_looks_the_same_is_read_at_every_refresh(tmp_path: Path) -> None:
    """A change that neither time nor size nor inode show is found by the content."""
    path = tmp_path / "t.yml"
    write(path, "a:1")
    files = follow(path)
    files.look(0.0)
    before = path.stat()
    path.write_text(path.read_text().replace("a:1", "b:1"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not files.look(REFRESH - 1.0).changed
    assert addresses(files) == ["a:1"]
    assert files.look(REFRESH).changed
    assert addresses(files) == ["b:1"]


def test_a_mounted_folder_is_followed_through_its_links(tmp_path: Path) -> None:
    """Kubernetes changes a mounted ConfigMap by moving one link to another folder."""
    for version, address in (("v1", "a:1"), ("v2", "b:1")):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "t.yml", address)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "t.yml").symlink_to("..data/t.yml")
    files = follow(tmp_path / "t.yml")
    files.look(0.0)
    assert addresses(files) == ["a:1"]
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    files.look(2.0)
    assert addresses(files) == ["b:1"]


def test_a_vanished_file_keeps_its_targets_and_is_counted(tmp_path: Path) -> None:
    """The failure counts at once and at every refresh, until the file is back."""
    path = tmp_path / "t.yml"
    write(path, "a:1")
    files = follow(path)
    assert reasons(files, 0.0) == []
    path.unlink()
    assert reasons(files, 2.0) == ["missing"]
    assert reasons(files, 4.0) == []
    assert reasons(files, REFRESH) == ["missing"]
    assert addresses(files) == ["a:1"]
    assert [fault.reason for fault in files.faults] == ["missing"]
    write(path, "a:1")
    assert reasons(files, REFRESH + 2.0) == []
    assert files.faults == ()
    assert addresses(files) == ["a:1"]


def test_a_malformed_file_keeps_its_targets_and_is_counted(tmp_path: Path) -> None:
    """Half a file, and one emptied to be written anew, change nothing."""
    path = tmp_path / "t.yml"
    write(path, "a:1")
    files = follow(path)
    assert reasons(files, 0.0) == []
    for step, text in enumerate(("[{targets: [b:1", "")):
        path.write_text(text)
        assert reasons(files, 2.0 + step) == ["malformed"]
        assert addresses(files) == ["a:1"]
    assert str(path) in files.faults[0].detail
    assert reasons(files, REFRESH) == ["malformed"]
    write(path)
    assert reasons(files, REFRESH + 2.0) == []
    assert addresses(files) == []


def test_a_file_that_heals_to_what_it_was_is_no_failure(tmp_path: Path) -> None:
    """The content of before, after a malformed one, is good again."""
    path = tmp_path / "t.yml"
    write(path, "a:1")
    good = path.read_text()
    files = follow(path)
    files.look(0.0)
    path.write_text("{")
    assert reasons(files, 2.0) == ["malformed"]
    path.write_text(good)
    assert reasons(files, 4.0) == []
    assert files.faults == ()


def test_a_pattern_means_files_that_come_and_go(tmp_path: Path) -> None:
    """New files count at the next look; hidden ones never; vanished ones stay."""
    write(tmp_path / "b.yml", "b:1")
    write(tmp_path / ".a.yml", "hidden:1")
    write(tmp_path / "c.json.yml", "c:1")
    (tmp_path / "notes.txt").write_text("no targets")
    files = follow(tmp_path / "*.yml")
    files.look(0.0)
    assert addresses(files) == ["b:1", "c:1"]
    write(tmp_path / "a.yml", "a:1")
    assert files.look(2.0).changed
    assert addresses(files) == ["a:1", "b:1", "c:1"]
    (tmp_path / "b.yml").unlink()
    assert reasons(files, 4.0) == ["missing"]
    assert addresses(files) == ["a:1", "b:1", "c:1"]


def test_a_refresh_on_demand_forgets_files_that_have_gone(tmp_path: Path) -> None:
    """After a reload of the configuration only what is there counts."""
    for name in ("a", "b"):
        write(tmp_path / f"{name}.yml", f"{name}:1")
    write(tmp_path / "named", "named:1")
    (tmp_path / "named").replace(tmp_path / "named.yaml")
    files = follow(tmp_path / "*.yml", tmp_path / "named.yaml")
    files.look(0.0)
    (tmp_path / "a.yml").unlink()
    (tmp_path / "named.yaml").unlink()
    files.look(2.0)
    assert addresses(files) == ["a:1", "b:1", "named:1"]
    files.refresh()
    assert reasons(files, 4.0) == ["missing"]  # the one that has a name
    assert addresses(files) == ["b:1"]


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    """A pattern may be given before its folder exists."""
    files = follow(tmp_path / "later" / "*.yml")
    assert reasons(files, 0.0) == []
    (tmp_path / "later").mkdir()
    write(tmp_path / "later" / "t.yml", "a:1")
    files.look(2.0)
    assert addresses(files) == ["a:1"]


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would hang the reader; a folder and a strange name are told as well."""
    os.mkfifo(tmp_path / "pipe.yml")
    (tmp_path / "folder.yml").mkdir()
    files = follow(
        tmp_path / "pipe.yml",
        tmp_path / "folder.yml",
        "/nul\x00.yml",
        "/dev/null/a.yml",
    )
    assert reasons(files, 0.0) == ["unreadable", "unreadable", "unreadable", "missing"]
    assert files.found == ()


def test_a_file_that_cannot_be_read_keeps_its_targets(tmp_path: Path) -> None:
    """An error of the file system is a failure like any other."""
    path = tmp_path / "t.yml"
    write(path, "a:1")
    files = follow(path)
    files.look(0.0)
    path.unlink()
    path.symlink_to("/proc/self/mem")  # its first byte is an I/O error, also for root
    assert reasons(files, 2.0) == ["unreadable"]
    assert addresses(files) == ["a:1"]


def test_a_file_named_twice_counts_once(tmp_path: Path) -> None:
    """By its name and by a pattern, at the place of the first."""
    write(tmp_path / "a.yml", "a:1")
    write(tmp_path / "b.yml", "b:1")
    files = follow(tmp_path / "b.yml", tmp_path / "*.yml")
    files.look(0.0)
    assert addresses(files) == ["b:1", "a:1"]
    assert files.found == (Found("b:1"), Found("a:1"))


def test_there_is_a_limit_of_files(tmp_path: Path) -> None:
    """A pattern for a folder full of files reads the first ones, and tells."""
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number:04}.yml").write_text(f"[{{targets: [a{number}:1]}}]")
    files = follow(tmp_path / "*.yml")
    assert reasons(files, 0.0) == ["too_many"]
    assert len(files.found) == MAX_FILES
    assert addresses(files)[-1] == f"a{MAX_FILES - 1}:1"


def test_it_is_settled_when_every_file_was_good_once(tmp_path: Path) -> None:
    """Until then a target that is not found may still be one."""
    path = tmp_path / "t.yml"
    files = follow(path, tmp_path / "*.json")
    assert not files.settled
    files.look(0.0)
    assert not files.settled
    path.write_text("{")
    files.look(2.0)
    assert not files.settled
    write(path, "a:1")
    files.look(4.0)
    assert files.settled
    path.unlink()
    files.look(6.0)
    assert files.settled
