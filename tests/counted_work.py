"""Work counted in the interpreter's own steps, which no load of the machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(work: Callable[[], object]) -> int:
    """Returns how many bytecode instructions *work* executes; C code counts nothing."""
    executed = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401 - sys's own
        nonlocal executed
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        executed += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return executed
