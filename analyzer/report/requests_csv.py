"""One CSV row a request: for whoever wants to look at each of them."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import numpy as np
import pandas as pd

from analyzer.report.columns import Columns
from analyzer.report.verdicts import VERDICTS, Judge, Verdicts
from analyzer.slo import NO_CLASS

COLUMNS = (
    "request_id",
    "start",
    "class",
    "model",
    "outcome",
    "ttft_seconds",
    "tpot_seconds",
    "e2e_seconds",
    "verdict",
    "reason",
)


class RequestsFile:
    """Writes requests as they are judged; what is not known is an empty field."""

    def __init__(self, path: Path, judge: Judge) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8", newline="")
        self._judge = judge
        self._names = np.array([*(c.name for c in judge.classes), NO_CLASS])
        pd.DataFrame(columns=list(COLUMNS)).to_csv(self._file, index=False)

    def add(self, columns: Columns, verdicts: Verdicts) -> None:
        """Writes a row for each request."""
        kinds = columns.kinds
        models = np.array([self._judge.served(k.model) for k in kinds], dtype=object)
        outcomes = np.array([k.outcome.value for k in kinds], dtype=object)
        frame = pd.DataFrame(
            {
                "request_id": columns.ids,
                "start": columns.start,
                "class": self._names[verdicts.slo_class],
                "model": models[columns.kind],
                "outcome": outcomes[columns.kind],
                "ttft_seconds": columns.ttft,
                "tpot_seconds": columns.tpot,
                "e2e_seconds": columns.e2e,
                "verdict": np.array([v.value for v in VERDICTS])[verdicts.code],
                "reason": _reasons(verdicts),
            }
        )
        frame.to_csv(self._file, index=False, header=False)

    def close(self) -> None:
        """Writes the rest and closes the file."""
        self._file.close()


def _reasons(verdicts: Verdicts) -> list[str]:
    """Returns each row's reason; each distinct one is put in words once."""
    parts = np.stack(
        [verdicts.code, verdicts.excluded, verdicts.missed, verdicts.unknown], axis=1
    )
    _, first, inverse = np.unique(parts, axis=0, return_index=True, return_inverse=True)
    words = [verdicts.reason(int(row)) for row in first]
    return [words[i] for i in inverse.reshape(-1)]
