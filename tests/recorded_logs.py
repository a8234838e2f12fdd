"""Every recorded request log of the fixtures, as a file to be read."""

from __future__ import annotations

import lzma
from pathlib import Path

from episodes import DIRECTORY as EPISODES
from episodes import NAMES as EPISODE_NAMES
from gateway_truth import DIRECTORY as GATEWAYS
from gateway_truth import LOGS

from analyzer.gateways.detect import detect
from analyzer.gateways.record import LineProblem, RequestRecord

NAMES = (
    *(f"gateway/{name}" for name in LOGS),
    *(f"episodes/{name}" for name in EPISODE_NAMES),
)


def packed(name: str) -> Path:
    """Returns where a log is, compressed."""
    kind, _, rest = name.partition("/")
    folder = GATEWAYS if kind == "gateway" else EPISODES
    return folder / rest / "access.log.xz"


def content(name: str) -> bytes:
    """Returns a log as it was written."""
    return lzma.decompress(packed(name).read_bytes())


def unpacked(name: str, directory: Path) -> Path:
    """Writes a log to a folder, and returns where."""
    path = directory / "access.log"
    path.write_bytes(content(name))
    return path


def parsed(
    data: bytes, headers: tuple[str, ...] = ()
) -> tuple[list[RequestRecord], list[str]]:
    """Returns the records of a log, line by line, and the reasons of other lines."""
    lines = data.removesuffix(b"\n").split(b"\n")
    log_format = detect(lines, headers)
    assert log_format is not None
    records, reasons = [], []
    for line in lines:
        try:
            record = log_format.parse(line)
        except LineProblem as problem:
            reasons.append(problem.reason)
            continue
        if record is not None:
            records.append(record)
    return [*records, *log_format.held()], reasons
