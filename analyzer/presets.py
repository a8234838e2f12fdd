"""Ready SLO classes with the sources of their figures; a starting point to edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """What a class takes over by `preset: NAME`, and where the figures come from."""

    values: Mapping[str, object]
    source: str


PRESETS: Mapping[str, Preset] = {
    "chat": Preset(
        {
            "name": "chat",
            "good": {"ttft": "450ms", "tpot": "40ms"},
            "objective": 0.95,
        },
        "MLPerf Inference v5.0, Llama 2 70B interactive: TTFT 450 ms, TPOT 40 ms "
        "(there at the 99th percentile)",
    ),
    "coding-assistant": Preset(
        {
            "name": "coding-assistant",
            "good": {"ttft": "125ms", "tpot": "200ms"},
            "objective": 0.9,
        },
        "DistServe (OSDI 2024), code completion, OPT-66B on HumanEval: TTFT 0.125 s, "
        "TPOT 0.2 s, attainment goal 90 %",
    ),
    "voice-agent": Preset(
        {
            "name": "voice-agent",
            "good": {"ttft": "250ms", "tpot": "100ms"},
            "objective": 0.95,
        },
        "DistServe (OSDI 2024), chatbot, OPT-13B on ShareGPT: TTFT 0.25 s, TPOT 0.1 s; "
        "speech plays about three words a second, so 100 ms a token keeps ahead of it",
    ),
    "offline-summarization": Preset(
        {
            "name": "offline-summarization",
            "good": {"ttft": "15s", "tpot": "150ms"},
            "objective": 0.9,
        },
        "DistServe (OSDI 2024), summarization, OPT-66B on LongBench: TTFT 15 s, "
        "TPOT 0.15 s, attainment goal 90 %",
    ),
    "batch": Preset(
        {"name": "batch", "good": {"e2e": "24h"}, "objective": 0.99},
        "The completion window of public batch APIs, 24 h: only failures are bad",
    ),
}
