"""An exposition that a parser meets twice: at first sight, and known."""

from __future__ import annotations

from analyzer.exposition import Exposition, Parser


def first_and_again(text: str) -> tuple[Exposition, Exposition]:
    """Returns what a parser reads from *text* at first sight and when it knows it."""
    parser = Parser()
    return parser.parse(text), parser.parse(text)
