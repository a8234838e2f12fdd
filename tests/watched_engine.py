"""An engine whose pages are made by hand, and the flow that follows it."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.config import parse_config
from analyzer.config_sources import EngineSource
from analyzer.flow import EngineFlow
from analyzer.heartbeat import Pulse
from analyzer.snapshot import Increase

PAGES = Path(__file__).parent / "fixtures" / "vllm"
SOURCE = EngineSource(
    "e", "http://engine:8000/metrics", interval=2.0, timeout=5.0, stall_grace=30.0
)
CONFIG = parse_config(
    """
slo_classes:
  - name: fast
    match: {model: "m"}
    good: {ttft: 500ms, e2e: 2500ms}
    objective: 0.9
    percentiles: {ttft: {p95: 500ms}}
  - {name: alias, match: {model: "gold"}, good: {ttft: 1s}, objective: 0.9}
"""
)
BOUNDS = (0.5, 2.5, 10.0)
LABELS = 'engine="0",model_name="m"'
BORN = 1000.0


@dataclass
class Engine:
    """What an engine has counted, and how its page looks."""

    started: float = BORN
    tokens: int = 0
    running: float = 0.0
    waiting: float = 0.0
    kv: float = 0.0
    awake: int = 1
    answered: int = 0
    failed: int = 0
    rejected: int = 0
    ttft: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)
    prefill: list[float] = field(default_factory=list)

    def finish(self, number: int = 1, *, ttft: float = 0.2, e2e: float = 1.0) -> None:
        """Finishes and answers requests of ten tokens."""
        self.tokens += 10 * number
        self.answered += number
        self.ttft += [ttft] * number
        self.e2e += [e2e] * number
        self.prefill += [ttft / 2] * number

    def page(self) -> str:
        """Returns the exposition."""
        http = 'http_requests_total{handler="/v1/completions",method="POST",status='
        refused = 'vllm:admission_rejections_total{model_name="m",reason="x"}'
        lines = [
            f"process_start_time_seconds {self.started}",
            f"vllm:num_requests_running{{{LABELS}}} {self.running}",
            f"vllm:num_requests_waiting{{{LABELS}}} {self.waiting}",
            f"vllm:kv_cache_usage_perc{{{LABELS}}} {self.kv}",
            f'vllm:engine_sleep_state{{{LABELS},sleep_state="awake"}} {self.awake}',
            f"vllm:generation_tokens_total{{{LABELS}}} {self.tokens}",
            f"{refused} {self.rejected}",
            f'{http}"2xx"}} {self.answered}',
            f'{http}"5xx"}} {self.failed}',
        ]
        for name, values in (
            ("time_to_first_token_seconds", self.ttft),
            ("e2e_request_latency_seconds", self.e2e),
            ("request_prefill_time_seconds", self.prefill),
        ):
            for bound in (*BOUNDS, float("inf")):
                count = sum(value <= bound for value in values)
                le = "+Inf" if bound > BOUNDS[-1] else bound
                lines.append(f'vllm:{name}_bucket{{{LABELS},le="{le}"}} {count}')
            lines.append(f"vllm:{name}_sum{{{LABELS}}} {sum(values)}")
        return "\n".join(lines) + "\n"


def flow(*, source: EngineSource = SOURCE, since: float = BORN + 100) -> EngineFlow:
    """Returns a flow whose watch begins after the engine did."""
    return EngineFlow(source, CONFIG, since=since)


def state(followed: EngineFlow, at: float) -> str:
    """Returns the state without its sentence."""
    return followed.state(at)[0]


def pulse(followed: EngineFlow) -> Pulse:
    """Returns the pulse of the latest page."""
    return followed.pulse


def total(followed: EngineFlow, name: str, *labels: str) -> float | None:
    """Returns a counter of the ledger."""
    return followed.ledger.counter(f"goodput_{name}_total", labels)


def real_page(name: str) -> str:
    """Returns a real page of vLLM 0.32.0."""
    return gzip.decompress((PAGES / f"{name}.prom.gz").read_bytes()).decode()


def observe(
    flow: EngineFlow, text: str, at: float, *, seconds: float = 0.0, tick: bool = True
) -> Increase | None:
    """Reads and records one page, as a sample does."""
    return flow.observe(flow.read(text, at), seconds=seconds, tick=tick)
