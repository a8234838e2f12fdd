"""What a recording brings to a report: its request log, and what bound its engine."""

from __future__ import annotations

from pathlib import Path

from analyzer.config import Config
from analyzer.replay import LogReplay, replay
from analyzer.report.constraints import Constraint, constraints_of
from analyzer.sources.log_file import log_path, read_lines
from analyzer.sources.recording import RecordingError, read_scrapes

__all__ = ["RecordingError", "read_recording"]


def read_recording(
    path: Path, config: Config, *, verdicts: bool
) -> tuple[Path | None, list[Constraint]]:
    """Returns a recording's log, if it has one, and with *verdicts* what bound when.

    Raises RecordingError.
    """
    log = log_path(path)
    read = LogReplay(read_lines(log), config) if log is not None else None
    scrapes = read_scrapes(path)
    replayed = replay(scrapes, config, log=read) if verdicts else None
    return log, constraints_of(replayed[0]) if replayed is not None else []
