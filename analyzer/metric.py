"""What a published metric is: its name, type, help text and labels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The Prometheus type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name on the wire, type, help text and labels in order."""

    name: str
    kind: Kind
    documentation: str
    labels: tuple[str, ...] = ()
