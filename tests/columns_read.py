"""Logs read to columns, as a report reads them, and what is to be compared of those."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from analyzer.config_gateways import GatewaySource
from analyzer.report.columns import FLAGS, NUMBERS, Columns
from analyzer.report.decode import Decoder, Lines
from analyzer.report.json_table import Misread
from analyzer.sources.log_blocks import pieces_of

Row = tuple[object, ...]


def rows(parts: Iterable[Columns]) -> list[Row]:
    """Returns each request as what is known of it, numbers as they are stored."""
    return [
        (
            columns.kinds[kind],
            *(repr(getattr(columns, name)[i]) for name in (*NUMBERS, *FLAGS)),
            columns.ids[i] if columns.ids else "",
        )
        for columns in parts
        for i, kind in enumerate(columns.kind.tolist())
    ]


def read(
    path: Path, *, fast: bool = True, headers: tuple[str, ...] = (), size: int = 1 << 30
) -> tuple[list[Columns], Lines]:
    """Reads a log piece by piece, as a report does."""
    found, lines = [], Lines()
    for piece in pieces_of(path, GatewaySource("log"), headers, piece_bytes=size):
        for ranges in (True, False):
            decoder = Decoder(piece.source, headers, ids=True, fast=fast)
            try:
                parts = [c for cs, _ in decoder.read(piece, ranges=ranges) for c in cs]
            except Misread:
                continue
            finally:
                decoder.close()
            found += parts
            _append(lines, decoder.lines)
            break
    return found, lines


def _append(lines: Lines, more: Lines) -> None:
    """Adds lines that stand behind others."""
    if lines.first is None and more.first is not None:
        lines.first = lines.lines + more.first[0], more.first[1]
    lines.lines += more.lines
    lines.records += more.records
    lines.parsed += more.parsed
    lines.problems.update(more.problems)
