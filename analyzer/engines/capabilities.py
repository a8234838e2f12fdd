"""Which signals an engine's page gives, and what it takes to get the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.engines.reading import EngineReading


@dataclass(frozen=True, slots=True)
class Capability:
    """One canonical signal, what it is for, and since when vLLM prints it."""

    signal: str
    purpose: str
    needs: str
    optional: bool = False  # absent on a healthy engine that does not use it


CAPABILITIES: tuple[Capability, ...] = (
    Capability("ttft", "time to first token", "vLLM 0.3.3 or later"),
    Capability("tpot", "time per output token, per request", "vLLM 0.11.0 or later"),
    Capability("e2e", "end-to-end latency", "vLLM 0.3.3 or later"),
    Capability("itl", "gaps between outputs", "vLLM 0.3.3 or later"),
    Capability("queue", "time in the engine's queue", "vLLM 0.6.4 or later"),
    Capability("prefill", "prefill time", "vLLM 0.6.4 or later"),
    Capability("decode", "decode time", "vLLM 0.6.4 or later"),
    Capability("running", "requests in the batch", "vLLM 0.2.5 or later"),
    Capability("waiting", "requests waiting", "vLLM 0.2.5 or later"),
    Capability("waiting_by_reason", "why requests wait", "vLLM 0.20.0 or later"),
    Capability("kv_cache_usage", "KV-cache blocks in use", "vLLM 0.2.5 or later"),
    Capability("preemptions", "preempted requests", "vLLM 0.4.3 or later"),
    Capability("generation_tokens", "output tokens", "vLLM 0.3.3 or later"),
    Capability("prompt_tokens", "prompt tokens", "vLLM 0.3.3 or later"),
    Capability(
        "prompt_tokens_by_source", "computed and cached prompts", "vLLM 0.16.0 or later"
    ),
    Capability("prefix_cache_queries", "prefix-cache lookups", "vLLM 0.9.2 or later"),
    Capability("prefix_cache_hits", "prefix-cache hits", "vLLM 0.9.2 or later"),
    Capability("finished", "finish reasons", "vLLM 0.4.2 or later"),
    Capability("rejections", "refused by queue limits", "vLLM 0.32.0 or later"),
    Capability("prompt_length", "prompt lengths", "vLLM 0.4.2 or later"),
    Capability("generation_length", "answer lengths", "vLLM 0.4.2 or later"),
    Capability("sleep_state", "sleep mode", "vLLM 0.11.1 or later"),
    Capability("cache_config", "KV-cache configuration", "vLLM 0.8.0 or later"),
    Capability("flops", "estimated work", "vLLM 0.17.0 or later"),
    Capability(
        "draft_tokens", "speculative decoding", "speculation switched on", optional=True
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A capability and the engine's metric that gives it, None when absent."""

    capability: Capability
    name: str | None


def capabilities(reading: EngineReading) -> tuple[Found, ...]:
    """Returns every capability with the metric found for it."""
    return tuple(Found(c, reading.names.get(c.signal)) for c in CAPABILITIES)


def missing(reading: EngineReading) -> Mapping[str, str]:
    """Returns the signals that are not on the page, with what they need."""
    return {
        found.capability.signal: f"not on the page; needs {found.capability.needs}"
        for found in capabilities(reading)
        if found.name is None and not found.capability.optional
    }
