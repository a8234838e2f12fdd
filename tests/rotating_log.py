"""A log of numbered lines: a process that writes it, and rotation as logrotate does it.

Run as a program it is the writer: PATH RATE SECONDS.
"""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

PAD = b"x" * 300


def line(number: int) -> bytes:
    """Returns the numbered line, with its newline."""
    return b'{"n":%d,"pad":"%s"}\n' % (number, PAD)


def number(text: bytes) -> int:
    """Returns the number of a whole line; fails for anything else."""
    found = int(text[5 : text.index(b",")])
    assert text + b"\n" == line(found)
    return found


def numbers(lines: list[bytes]) -> list[int]:
    """Returns the numbers of whole lines."""
    return [number(text) for text in lines]


def rotate(path: Path, *, compress_after: int = 0, copy: bool = False) -> None:
    """Rotates as logrotate does: the older ones move up, then the live file.

    With *compress_after* n, files numbered n or more are compressed. With *copy* the
    live file is copied and truncated instead of renamed.
    """
    highest = 1
    while _rotated(path, highest):
        highest += 1
    for index in range(highest - 1, 0, -1):
        for old in _rotated(path, index):
            ending = ".gz" if old.suffix == ".gz" else ""
            old.rename(f"{path}.{index + 1}{ending}")
    if copy:
        shutil.copyfile(path, f"{path}.1")
        os.truncate(path, 0)
    else:
        path.rename(f"{path}.1")
        path.touch()
    if compress_after:
        for index in range(compress_after, highest + 1):
            compress(Path(f"{path}.{index}"))


def _rotated(path: Path, index: int) -> list[Path]:
    names = [Path(f"{path}.{index}"), Path(f"{path}.{index}.gz")]
    return [name for name in names if name.exists()]


def compress(path: Path) -> None:
    """Replaces a file by its gzip archive, with the time of the last write."""
    if not path.exists():
        return
    found = path.stat()
    archive = Path(f"{path}.gz")
    with path.open("rb") as source, gzip.open(archive, "wb", 1) as target:
        shutil.copyfileobj(source, target)
    os.utime(archive, ns=(found.st_atime_ns, found.st_mtime_ns))
    path.unlink()


class Writer:
    """The writing process; `reopen` makes it open its path anew, as a signal does."""

    def __init__(self, path: Path, *, rate: int, seconds: float) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(path), str(rate), str(seconds)]
        )
        while not path.exists():
            time.sleep(0.01)

    def reopen(self) -> None:
        """Makes the writer open its path again."""
        self.process.send_signal(signal.SIGUSR1)

    def written(self) -> int:
        """Waits for the end and returns how many lines were written."""
        assert self.process.wait(60) == 0
        return int(Path(f"{self.path}-count").read_text(encoding="ascii"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def main(path: str, rate: int, seconds: float) -> None:
    """Writes numbered lines from 1 on, one write each; SIGUSR1 reopens the file."""
    reopen = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal reopen
        reopen = True

    def opened() -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    signal.signal(signal.SIGUSR1, ask)
    file = opened()
    written = 0
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        if reopen:
            reopen = False
            os.close(file)
            file = opened()
        due = int(passed * rate)
        while written < due and not reopen:
            written += 1
            os.write(file, line(written))
        time.sleep(0.0005)
    Path(f"{path}-count").write_text(str(written), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
