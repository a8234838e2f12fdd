"""Log lines on standard error: one event a line, as logfmt or JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

FORMATS = ("logfmt", "json")


class _Formatter(logging.Formatter):
    """Writes time, level, logger and message; a traceback stays on the same line."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        if self._json:
            return json.dumps(fields, ensure_ascii=False)
        return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


def _quoted(value: str) -> str:
    """Returns *value* as logfmt needs it: quoted when it has spaces or quotes."""
    if value and not any(c in value for c in ' ="\n\r\t'):
        return value
    return json.dumps(value, ensure_ascii=False)


def configure_logging(level: str, form: str) -> None:
    """Sends the program's log to standard error at *level* in *form*."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(form))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("urllib3", "apscheduler"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
