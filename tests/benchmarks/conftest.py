"""What the benchmarks share."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker of what prints times and asserts none."""
    config.addinivalue_line("markers", "benchmark: prints times, and asserts none")
