"""The recordings of a real vLLM that the tests read, with the client's own clock."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parent / "fixtures" / "episodes"
NAMES = tuple(sorted(path.name for path in DIRECTORY.iterdir()))


@dataclass(frozen=True)
class Request:
    """One finished, unaborted stream as its client saw it; latencies in seconds."""

    ttft: float
    tpot: float | None
    e2e: float

    def good(self, *, ttft: float, tpot: float, e2e: float) -> bool:
        """Whether it met all three thresholds; one token has no TPOT."""
        return (
            self.ttft <= ttft
            and (self.tpot is None or self.tpot <= tpot)
            and self.e2e <= e2e
        )


def finished_streams(name: str) -> list[Request]:
    """Returns the finished, unaborted streams of an episode."""
    with (DIRECTORY / name / "truth.csv").open(encoding="utf-8", newline="") as file:
        return [
            Request(
                float(row["ttft_s"]),
                float(row["tpot_s"]) if row["tpot_s"] else None,
                float(row["e2e_s"]),
            )
            for row in csv.DictReader(file)
            if row["outcome"] == "ok" and row["stream"] == "1" and row["ttft_s"]
        ]
