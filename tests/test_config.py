"""The configuration as it loads: every section, key and default."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_files import FIXTURES

from analyzer.config import Config, Limits, load_config
from analyzer.config_discovery import DnsSd, FileSd
from analyzer.config_gateways import GatewaySource, LogField
from analyzer.config_gpus import GpuSource
from analyzer.config_sources import Credentials, EngineGroup, EngineSource, Tls
from analyzer.gpus.match import GpuMatch
from analyzer.slo import Match, SloClass, Threshold

pytestmark = pytest.mark.usefixtures("config_environment")


def test_every_section_and_key_is_read() -> None:
    """The full example gives every value in base units, variables replaced."""
    config = load_config(FIXTURES / "valid" / "full.yml")
    assert config == Config(
        slo_classes=(
            SloClass(
                name="interactive",
                match=Match(
                    models=("*",),
                    routes=("/v1/chat/completions",),
                    tenants=("free", "pro"),
                    headers={"x-tier": ("gold", "silver-*")},
                    prompt_tokens=(1.0, 8000.0),
                ),
                good={
                    "ttft": Threshold(1.0),
                    "tpot": Threshold(0.05),
                    "e2e": Threshold(10.0),
                },
                objective=0.95,
                window_seconds=28 * 86400.0,
                percentiles={
                    ("ttft", "p95"): 1.0,
                    ("e2e", "p99"): 10.0,
                    ("e2e", "p99.9"): 90.0,
                },
                stages={
                    "gateway": 0.3,
                    "serving": 0.25,
                    "delivery": 0.02,
                    "margin": 0.05,
                },
            ),
            SloClass(
                name="long-prompts",
                match=Match(),
                good={
                    "ttft": Threshold(0.3, 0.0002),
                    "tpot": Threshold(0.05),
                    "max_gap": Threshold(2.0),
                },
                objective=0.9,
                window_seconds=28 * 86400.0,
                percentiles={("tpot", "p50"): 0.04},
            ),
        ),
        engines=(
            EngineSource(
                name="vllm",
                url="http://localhost:8000/metrics",
                engine="auto",
                interval=2.0,
                timeout=4.0,
                startup_grace=600.0,
                stall_grace=60.0,
                max_body_bytes=1 << 20,
                aliases={"my-alias": "served-name"},
                tls=Tls("ca.pem", "cert.pem", "key.pem", insecure_skip_verify=False),
                credentials=Credentials(bearer_file="token"),
                declared={
                    "max_num_seqs": 256,
                    "max_num_batched_tokens": 8192,
                    "max_model_len": 32768,
                    "tensor_parallel": 1,
                    "pipeline_parallel": 1,
                    "data_parallel": 2,
                },
            ),
            EngineSource(
                name="second",
                url="https://[::1]:8443/metrics",
                credentials=Credentials(username="scraper", password_file="pw"),
            ),
        ),
        gpus=(
            GpuSource(
                name="node",
                url="http://dcgm-exporter.gpu-operator:9400/metrics",
                interval=5.0,
                timeout=3.0,
                max_body_bytes=1 << 20,
                match=GpuMatch(
                    hostname="worker-7",
                    pod="vllm-0",
                    namespace="serving",
                    container="vllm",
                    uuids=("GPU-1", "GPU-2/3"),
                    indexes=("0", "1"),
                    pci_bus_ids=("00000000:53:00.0",),
                ),
                tls=Tls("gpu-ca.pem"),
                credentials=Credentials(username="scraper", password_file="pw"),
            ),
        ),
        gateways=(
            GatewaySource(
                name="edge",
                path="/var/log/envoy/access.log",
                framing="cri",
                policy_statuses=(429, 503),
            ),
            GatewaySource(
                name="engine",
                socket="unix:///run/goodput/requests.sock",
                counts=False,
            ),
            GatewaySource(name="syslog", syslog="udp://:5514", format="haproxy"),
            GatewaySource(
                name="house",
                path="/logs/gw.jsonl",
                format="custom",
                fields={
                    "start": LogField("time", "s"),
                    "request_id": LogField("rid"),
                    "status": LogField("status"),
                    "model": LogField("model"),
                    "tenant": LogField("tenant"),
                    "ttft": LogField("ttft_ms", "ms"),
                    "e2e": LogField("duration_ms", "ms"),
                    "completion_tokens": LogField("usage.completion_tokens"),
                },
            ),
        ),
        limits=Limits(models=10, label_values=30, ranks=256),
        engine_histograms=False,
    )


def test_an_address_is_all_that_an_engine_needs() -> None:
    """A name and a URL give an engine with every default, and nothing else."""
    config = load_config(FIXTURES / "valid" / "minimal.yml")
    assert config == Config(
        engines=(EngineSource("vllm", "http://localhost:8000/metrics"),)
    )
    engine = config.engines[0]
    assert (engine.interval, engine.timeout) == (2.0, 5.0)
    assert (engine.startup_grace, engine.stall_grace) == (600.0, 30.0)
    assert config.engine_histograms
    assert config.limits == Limits(models=20, label_values=20, ranks=128)


def test_an_entry_may_stand_for_many_engines() -> None:
    """Files are relative to the configuration's folder; the rest has defaults."""
    folder = FIXTURES / "valid"
    config = load_config(folder / "discovery.yml")
    assert config == Config(
        engines=(EngineSource("one", "http://localhost:8000/metrics"),),
        engine_groups=(
            EngineGroup(
                EngineSource(
                    "fleet", "", interval=5.0, aliases={"my-alias": "served-name"}
                ),
                FileSd(
                    (f"{folder}/targets/*.yml", "/etc/goodput/x.json"),
                    scheme="https",
                    metrics_path="/engine/metrics",
                    refresh=60.0,
                ),
            ),
            EngineGroup(
                EngineSource("service", ""),
                DnsSd(
                    "vllm.ns.svc.cluster.local.",
                    8000,
                    scheme="https",
                    metrics_path="/engine/metrics",
                    refresh=10.0,
                ),
            ),
            EngineGroup(
                EngineSource("files", ""),
                FileSd((f"{folder}/x.yaml",), "http", "/metrics", 30.0),
            ),
            EngineGroup(
                EngineSource("name", ""), DnsSd("vllm", 8000, "http", "/metrics", 30.0)
            ),
        ),
    )


def test_a_preset_gives_what_the_class_does_not() -> None:
    """Keys beside `preset` replace the preset's whole value, the others stay."""
    classes = load_config(FIXTURES / "valid" / "presets.yml").slo_classes
    assert [c.name for c in classes] == [
        "coding-assistant",
        "phone",
        "chat",
        "offline-summarization",
        "batch",
    ]
    coding, phone, chat, _, batch = classes
    assert coding.match.models == ("code-*",)
    assert phone.objective == 0.99
    assert phone.good == {"ttft": Threshold(0.25), "tpot": Threshold(0.1)}
    assert chat.good == {"ttft": Threshold(2.0)}
    assert batch.good == {"e2e": Threshold(86400.0)}


def test_anchors_dates_and_other_scripts_are_plain_values() -> None:
    """An alias repeats its value; what looks like a date stays text."""
    first, second = load_config(FIXTURES / "valid" / "anchors.yml").slo_classes
    assert first.name == "2025-01-01"
    assert first.match.models == ("模型-*",)
    assert first.good == second.good == {"ttft": Threshold(1.0)}


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_any_unicode_encoding_with_a_mark_is_read(
    codec: str, newline: str, tmp_path: Path
) -> None:
    """Files of editors that write marks, UTF-16 or CRLF mean the same."""
    path = tmp_path / "goodput.yml"
    text = (FIXTURES / "valid" / "minimal.yml").read_text()
    path.write_bytes(text.replace("\n", newline).encode(codec))
    assert load_config(path) == load_config(FIXTURES / "valid" / "minimal.yml")
