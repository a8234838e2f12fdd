"""Files of `--web.config.file`, read in a folder with certificates."""

from __future__ import annotations

from pathlib import Path

from exporter.web_config import WebConfig, read_web_config


def read(folder: Path, text: str) -> WebConfig:
    """Returns what *text* says as the folder's file."""
    path = folder / "web.yml"
    path.write_text(text)
    return read_web_config(path)
