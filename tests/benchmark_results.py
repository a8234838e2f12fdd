"""Results that real benchmark tools wrote for a real vLLM, unpacked for a test.

`sweeps/` are two sweeps of `vllm bench serve --save-detailed`; the other folders have
a few short runs of each tool. Prompts, answers and machines' paths are blanked.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "fixtures" / "benchmarks" / "results.tar.xz"
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)


def unpack(folder: Path) -> Path:
    """Unpacks all results into *folder* and returns it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def document(path: Path) -> Any:  # noqa: ANN401  whatever the tool wrote
    """Returns a result as the tool wrote it."""
    return json.loads(path.read_text(encoding="utf-8"))


def good_of(
    result: dict[str, Any], *, ttft: float, tpot: float, e2e: float
) -> list[bool]:
    """Returns which requests of a vLLM result are good, computed by hand."""
    found = []
    for first, whole, tokens in zip(
        result["ttfts"], result["latencies"], result["output_lens"], strict=True
    ):
        between = (whole - first) / (tokens - 1) if tokens > 1 else 0.0
        found.append(first <= ttft and between <= tpot and whole <= e2e)
    return found
