"""Single log lines to records, for tests of one format each."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from analyzer.gateways.format import Format
from analyzer.gateways.record import LineProblem, RequestRecord


def parsed(log_format: Format, line: Mapping[str, object] | bytes) -> RequestRecord:
    """Returns the record of a line, which is JSON when it is given as a mapping."""
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    record = log_format.parse(raw)
    assert record is not None
    return record


def rounded(record: RequestRecord) -> RequestRecord:
    """Returns *record* with its numbers rounded to the microsecond, to be compared."""
    values = msgspec.structs.asdict(record)
    numbers = {k: round(v, 6) for k, v in values.items() if isinstance(v, float)}
    return msgspec.structs.replace(record, **numbers)


def problem_of(log_format: Format, line: Mapping[str, object] | bytes) -> str:
    """Returns the reason why a line gives no record."""
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    with pytest.raises(LineProblem) as caught:
        log_format.parse(raw)
    return caught.value.reason
