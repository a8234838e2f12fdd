"""Writes the dashboards to dashboards/json."""

from __future__ import annotations

from pathlib import Path

from builder.boards import build

FOLDER = Path(__file__).parent.parent / "json"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    written = build()
    for stale in set(FOLDER.glob("*.json")) - {FOLDER / name for name in written}:
        stale.unlink()
    for name, content in written.items():
        (FOLDER / name).write_text(content, encoding="utf-8")
