"""The words of a report for what its tables name."""

from __future__ import annotations

from analyzer.report.report import Row

MEASURES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "max_gap": "largest gap",
    "e2e": "E2E",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
}
STAGES = {
    "gateway": "before the server",
    "first_token": "server, to the first token",
    "output": "server, output",
    "serving": "server",
    "delivery": "after the server",
}


def missed_text(row: Row) -> str:
    """Returns which criterion was missed, with its limit."""
    name = MEASURES.get(row["criterion"], row["criterion"])
    return f"{name} > {row['threshold']}" if row["threshold"] else str(name)
