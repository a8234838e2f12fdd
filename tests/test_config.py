"""The configuration file: what loads, and the exact message for what does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.config import Config, Limits, load_config, read_config
from analyzer.config_discovery import DnsSd, FileSd
from analyzer.config_gpus import GpuSource
from analyzer.config_sources import (
    Credentials,
    EngineGroup,
    EngineSource,
    GatewaySource,
    LogField,
    Tls,
)
from analyzer.gpus.match import GpuMatch
from analyzer.slo import Match, SloClass, Threshold
from analyzer.strict import MAX_BYTES, ConfigError, parse

FIXTURES = Path(__file__).parent / "fixtures" / "config"
INVALID = sorted((FIXTURES / "invalid").glob("*.yml"))
SECRETS = ("hunter2", "hunter@2", "hunter")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the variables that the fixtures use, and unsets the one that is missing."""
    monkeypatch.setenv("NODE_NAME", "worker-7")
    monkeypatch.setenv("POD_NAME", "vllm-0")
    monkeypatch.setenv("GOODPUT_TEST_EMPTY", "")
    monkeypatch.setenv("GOODPUT_TEST_URL", "not-a-url")
    monkeypatch.delenv("GOODPUT_TEST_UNSET", raising=False)


def message_of(text: str | bytes, tmp_path: Path) -> str:
    """Returns the error of a file with that content, without the file's name."""
    path = tmp_path / "goodput.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    error = caught.value
    assert error.file == str(path)
    found = str(error)
    assert found.startswith(f"{path}: ")
    return found.removeprefix(f"{path}: ")


# What loads.


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


# What does not load.


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_a_fault_is_named_with_its_place(path: Path) -> None:
    """Each invalid file gives exactly the message in its first line, after its name."""
    if path.stem.startswith("gateway-pattern-"):
        pytest.importorskip("re2", reason="patterns need google-re2")
    expected = path.read_text().splitlines()[0].removeprefix("# ")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: {expected}"


@pytest.mark.parametrize(
    "path",
    [path for path in INVALID if any(s in path.read_text() for s in SECRETS)],
    ids=lambda path: path.stem,
)
def test_no_message_repeats_a_password(path: Path) -> None:
    """Wherever a password stands in the file, the error does not show it."""
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    shown = f"{caught.value} {caught.value.args!r} {caught.value.message}"
    assert not any(secret in shown for secret in SECRETS)


def test_a_password_from_the_environment_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bad URL from a variable is quoted as written, not as it was filled in."""
    monkeypatch.setenv("GOODPUT_TEST_URL", "http://admin:hunter2 @host:99999/")
    with pytest.raises(ConfigError, match=r"got '\$\(GOODPUT_TEST_URL\)'$"):
        load_config(FIXTURES / "invalid" / "variable-bad-url.yml")


def test_the_file_is_named_when_it_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and a directory give the system's reason."""
    missing = tmp_path / "missing.yml"
    with pytest.raises(ConfigError) as caught:
        load_config(missing)
    assert str(caught.value) == f"{missing}: cannot be read: No such file or directory"
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_an_empty_file_says_what_to_give(tmp_path: Path) -> None:
    """Nothing at all, and only white space, are refused alike."""
    expected = "is empty; give at least one engine or SLO class"
    assert message_of("", tmp_path) == expected
    assert message_of(" \n\n", tmp_path) == expected


def test_a_file_beyond_the_limit_is_not_parsed(tmp_path: Path) -> None:
    """One byte more than 1 MiB is refused; the limit itself is not."""
    minimal = (FIXTURES / "valid" / "minimal.yml").read_bytes()
    fitting = minimal + b"#" * (MAX_BYTES - len(minimal))
    assert message_of(fitting + b"#", tmp_path) == "larger than 1048576 bytes"
    path = tmp_path / "fitting.yml"
    path.write_bytes(fitting)
    assert len(load_config(path).engines) == 1


def test_a_list_has_a_limit(tmp_path: Path) -> None:
    """The 1001st engine is refused."""
    entry = '{{name: e{0}, url: "http://e{0}:8000/metrics"}}'
    engines = ", ".join(entry.format(n) for n in range(1001))
    expected = "engines: has 1001 entries, at most 1000"
    assert message_of(f"engines: [{engines}]", tmp_path) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"limits: {models: \xff}", "position 17: not YAML: invalid start byte"),
        (b"# caf\xe9\n", "position 5: not YAML: invalid continuation byte"),
        (
            b'limits: {models: "\x00"}',
            "position 18: not YAML: special characters are not allowed",
        ),
        ("engines: []".encode("utf-16")[:-1], "position 22: not YAML: truncated data"),
        (
            b'engines: [{name: a, url: "http://\\ud800/"}]',
            "engines[0].url: must be valid Unicode, got 'http://\\ud800/'",
        ),
        (b"\x89PNG\r\n\x1a\n\x00", "position 0: not YAML: invalid start byte"),
    ],
)
def test_bytes_that_are_no_text_are_named(
    data: bytes, expected: str, tmp_path: Path
) -> None:
    """Other encodings, control characters and binary files name the position."""
    assert message_of(data, tmp_path) == expected


def test_a_variable_of_bytes_that_are_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value that is not UTF-8 would fail later, where it is sent or printed."""
    monkeypatch.setenv("GOODPUT_TEST_URL", os.fsdecode(b"http://h\xff:8000/"))
    with pytest.raises(ConfigError) as caught:
        load_config(FIXTURES / "invalid" / "variable-bad-url.yml")
    assert caught.value.message == "must be valid Unicode, got '$(GOODPUT_TEST_URL)'"


# Files made to harm.

MANY = MAX_BYTES // 2 - 20
UNKNOWN_KEY = (
    "unknown key (known: engine_histograms, engines, gateways, gpus, limits, "
    "slo_classes)"
)
SHOWN = "[['a'], [" + "['a'], " * 10
BOMBS = {
    "brackets": ("[" * MAX_BYTES, "line 1: nested more than 20 levels deep"),
    "braces": ("{a: " * (MAX_BYTES // 4), "line 1: nested more than 20 levels deep"),
    "dashes": ("- " * MANY, "line 1: nested more than 20 levels deep"),
    "keys in keys": ("? " * MANY, "line 1: nested more than 20 levels deep"),
    "values": ("[" + "1," * MANY + "]", "line 1: more than 50000 values in the file"),
    "keys": (
        "".join(f"k{n}: v\n" for n in range(30_000)),
        "line 25000: more than 50000 values in the file",
    ),
    "aliases": (
        "limits: &a 1\nengines: [" + "*a," * (MAX_BYTES // 3 - 20) + "]",
        "line 2: more than 50000 values in the file",
    ),
    "digits": (
        "limits: {models: " + "9" * MANY + "}",
        f"line 1: a number of {MANY} digits; text needs quotes",
    ),
    "base 60": (
        "limits: {models: 1" + ":1" * (MANY // 2) + "}",
        f"line 1: a number of {2 * (MANY // 2) + 1} digits; text needs quotes",
    ),
    "hexadecimal": (
        "limits: {models: 0x" + "f" * MANY + "}",
        f"line 1: a number of {MANY + 2} digits; text needs quotes",
    ),
    "escapes": (
        'limits: "' + "\\x41" * (MANY // 2) + '"',
        "limits: must be a mapping, got '" + "A" * 59 + "…",
    ),
    "alias expansion": (
        "x0: &x0 [a]\n"
        + "".join(
            f"x{n}: &x{n} [" + ", ".join([f"*x{n - 1}"] * 10) + "]\n"
            for n in range(1, 10)
        )
        + "limits: *x9\n",
        f"x0: {UNKNOWN_KEY}",
    ),
    "shown alias expansion": (
        "limits: [&x0 [a], "
        + ", ".join(
            f"&x{n} [" + ", ".join([f"*x{n - 1}"] * 10) + "]" for n in range(1, 10)
        )
        + "]\n",
        f"limits: must be a mapping, got {SHOWN[:60]}…",
    ),
    "merge expansion": (
        "a0: &a0 {k: v}\n"
        + "".join(
            f"a{n}: &a{n} {{<<: [" + ", ".join([f"*a{n - 1}"] * 10) + "]}\n"
            for n in range(1, 10)
        ),
        "line 2: merge keys (<<) are not supported",
    ),
    "itself": ("limits: &a [*a]", "limits: must be a mapping, got [[[[...]]]]"),
    "long key": (
        f"{'k' * 1000}: 1",
        f"'{'k' * 59}…: {UNKNOWN_KEY}",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_made_to_harm_is_refused(name: str, tmp_path: Path) -> None:
    """Deep, wide, long and self-referring documents give a short exact message."""
    text, expected = BOMBS[name]
    assert len(text) <= MAX_BYTES
    assert message_of(text, tmp_path) == expected


@pytest.mark.slow
def test_harmful_files_take_little_memory(tmp_path: Path) -> None:
    """Each is refused within 64 MiB on top of the interpreter, in a process."""
    for number, (text, _) in enumerate(BOMBS.values()):
        (tmp_path / f"{number}.yml").write_text(text)
    program = (
        "import pathlib, resource, sys\n"
        "from analyzer.config import load_config\n"
        "from analyzer.strict import ConfigError\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.yml')):\n"
        "    try:\n"
        "        load_config(path)\n"
        "    except ConfigError:\n"
        "        continue\n"
        "    sys.exit(f'{path} was loaded')\n"
        "print((used() - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64


# Whatever stands in the file, it loads or a ConfigError says why.

PLAIN = yaml.safe_load((FIXTURES / "valid" / "full.yml").read_text())
PLAIN["engines"] += yaml.safe_load((FIXTURES / "valid" / "discovery.yml").read_text())[
    "engines"
]
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**15, 10**400),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["1s", "0s", "-1s", "1e9s", "999999999999999999999w", "$(A", "$()", "$(UNSET_)"]
    ),
    st.sampled_from(["http://", "http://a:b@c", "http://[", "udp://:", "unix://"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), st.none()),
)


def places(
    value: object, path: tuple[str | int, ...] = ()
) -> list[tuple[str | int, ...]]:
    """Returns the path of every value of a document."""
    found = [path]
    if isinstance(value, dict):
        for key, member in value.items():
            found += places(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            found += places(member, (*path, index))
    return found


def mutated(value: object, path: tuple[str | int, ...], change: object) -> object:
    """Returns a copy of a document with one place replaced, renamed or dropped."""
    if not path:
        return change
    head, rest = path[0], path[1:]
    if isinstance(value, list):
        return [
            mutated(member, rest, change) if index == head else member
            for index, member in enumerate(value)
        ]
    assert isinstance(value, dict)
    result = dict(value)
    if not rest and change == "drop":
        del result[head]
    elif not rest and isinstance(change, tuple):
        result[change[0]] = result.pop(head)
    else:
        result[head] = mutated(result[head], rest, change)
    return result


def load_or_refuse(text: str | bytes) -> None:
    """Loads a configuration; any exception but a short ConfigError escapes."""
    message = "goodput.yml: loaded"
    try:
        read_config(parse(text, "goodput.yml"))
    except ConfigError as error:
        message = str(error)
    assert message.startswith("goodput.yml: ")
    assert "\n" not in message
    assert len(message) < 600


ONE_PLACE = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@ONE_PLACE
@given(
    st.lists(
        st.tuples(
            st.sampled_from(places(PLAIN)),
            st.one_of(STRANGE, st.just("drop"), st.tuples(st.text(max_size=6))),
        ),
        min_size=1,
        max_size=2,
    )
)
def test_a_changed_configuration_loads_or_is_refused(
    changes: list[tuple[tuple[str | int, ...], object]],
) -> None:
    """Values replaced, keys renamed or dropped anywhere raise no other exception."""
    document: object = PLAIN
    for path, change in changes:
        if path in places(document):
            renamed = isinstance(change, tuple) and (
                not path or isinstance(path[-1], int)
            )
            document = mutated(document, path, None if renamed else change)
    load_or_refuse(yaml.safe_dump(document, allow_unicode=True))


@ONE_PLACE
@given(
    st.integers(0, 2000),
    st.integers(0, 40),
    st.one_of(
        st.text(max_size=5),
        st.sampled_from(
            ["&a ", "*a", "!!", "<<: ", "? ", ": ", "- ", "\t", "|\n", "%"]
        ),
    ),
)
def test_damaged_text_loads_or_is_refused(at: int, cut: int, insert: str) -> None:
    """Characters cut out or put in anywhere raise no other exception."""
    text = (FIXTURES / "valid" / "full.yml").read_text()
    load_or_refuse(text[:at] + insert + text[at + cut :])


@ONE_PLACE
@given(st.binary(max_size=60))
def test_any_bytes_load_or_are_refused(data: bytes) -> None:
    """Arbitrary bytes raise no other exception."""
    load_or_refuse(data)
