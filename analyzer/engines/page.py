"""One scraped page of an engine: its text read into signals, or why it is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analyzer.engines.labels import EngineLabels
from analyzer.engines.reader import VllmReader
from analyzer.engines.reading import EngineReading
from analyzer.exposition import Exposition, LineError, Parser

DETAIL_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class EnginePage:
    """What one page says, and how it was damaged.

    *failure* is the reason why it is no page of an engine, one of those under which
    scrapes fail, with its *detail*; "" when it is one. *dropped* are the series that
    went to `other`, by label.
    """

    reading: EngineReading
    damaged_lines: int = 0
    errors: tuple[LineError, ...] = ()
    failure: str = ""
    detail: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def at(self) -> float:
        """When it was scraped, in Unix seconds."""
        return self.reading.snapshot.at


class PageReader:
    """Reads one target's pages; remembers its series between scrapes.

    *labels* gives the label values under which models, ranks and the like are kept.
    """

    def __init__(self, labels: EngineLabels) -> None:
        self._labels = labels
        self._parser = Parser()
        self._reader = VllmReader(labels=labels)

    def read(self, text: str, at: float) -> EnginePage:
        """Returns what *text*, scraped at *at* (Unix seconds), says."""
        exposition = self._parser.parse(text)
        reading = self._reader.read(exposition, at)
        failure, detail = _failure(text, exposition, reading)
        return EnginePage(
            reading,
            exposition.damaged_lines,
            exposition.errors,
            failure,
            detail,
            self._labels.take_dropped(),
        )


def _failure(
    text: str, exposition: Exposition, reading: EngineReading
) -> tuple[str, str]:
    """Returns why *text* is no engine's page, and what it is instead."""
    if text and not text.endswith("\n"):
        return "connection", "ends within a line"
    if not exposition.values and not text.rstrip().endswith("# EOF"):
        return "not_an_exposition", text[:DETAIL_CHARACTERS]
    if exposition.values and reading.prefix is None and not reading.frontend:
        name = exposition.series[0].name[:DETAIL_CHARACTERS]
        return "no_engine_metrics", f"no vLLM series, first: {name}"
    return "", ""
