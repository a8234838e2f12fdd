"""Target groups: what a file_sd file means, and how its targets are named."""

from __future__ import annotations

import json

import pytest

from analyzer.config_discovery import DnsSd, FileSd
from analyzer.config_sources import EngineGroup, EngineSource
from analyzer.strict import MAX_BYTES, ConfigError
from analyzer.targets import (
    MAX_CHARACTERS,
    MAX_TARGETS,
    Fault,
    Found,
    engine_sources,
    parse_targets,
)

GROUP = EngineGroup(
    EngineSource("fleet", "", interval=5.0, declared={"max_num_seqs": 8}),
    FileSd(("targets.yml",)),
)
YAML = """
- targets: ["a:8000", "b:8000"]
  labels: {pod: vllm-0, node: worker-1, team: search}
- targets: [c]
  labels:
    __scheme__: https
    __metrics_path__: /engine/metrics
    __address__: elsewhere:1
    node: 7
- targets: []
- labels: {pod: nobody}
"""
FOUND = (
    Found("a:8000", pod="vllm-0", node="worker-1"),
    Found("b:8000", pod="vllm-0", node="worker-1"),
    Found("c", scheme="https", metrics_path="/engine/metrics", node="7"),
)


def names(*found: Found) -> list[str]:
    """Returns the names that targets get."""
    sources, faults = engine_sources(GROUP, found)
    assert faults == ()
    return [source.name for source in sources]


def test_groups_of_yaml_are_read() -> None:
    """Labels of a group hold for all its targets; a target's address stays its own."""
    assert parse_targets(YAML.encode(), "x.yml") == FOUND


def test_groups_of_json_are_read_the_same() -> None:
    """JSON by the name's ending, in any case, gives the same targets."""
    document = [
        {
            "targets": ["a:8000", "b:8000"],
            "labels": {"pod": "vllm-0", "node": "worker-1", "rack": "r"},
        },
        {
            "targets": ["c"],
            "labels": {
                "__scheme__": "https",
                "__metrics_path__": "/engine/metrics",
                "__address__": "elsewhere:1",
                "node": "7",
            },
        },
        {"targets": None, "labels": None},
    ]
    assert parse_targets(json.dumps(document).encode(), "x.JSON") == FOUND


@pytest.mark.parametrize("name", ["x.yml", "x.json"])
def test_an_empty_list_means_no_targets(name: str) -> None:
    """`[]` is a file without targets, and no fault."""
    assert parse_targets(b"[]", name) == ()


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"", "x.yml", "x.yml: is empty; [] means no targets"),
        (b"# nothing\n", "x.yml", "x.yml: is empty; [] means no targets"),
        (b"null", "x.json", "x.json: is empty; [] means no targets"),
        (b"", "x.json", "x.json: not JSON: Input data was truncated"),
        (b'[{"targets"', "x.json", "x.json: not JSON: Input data was truncated"),
        (b"[" * 5000, "x.json", "x.json: not JSON: "),
        (b'"\xff"', "x.json", "x.json: not JSON: "),
        (b"a: b", "x.yml", "x.yml: must be a list, got {'a': 'b'}"),
        (b"[a]", "x.yml", "x.yml: [0]: must be a mapping, got 'a'"),
        (b"[null]", "x.json", "x.json: [0]: must be a mapping, got None"),
        (b"[{hosts: []}]", "x.yml", "x.yml: [0].hosts: unknown key"),
        (b"[{targets: a}]", "x.yml", "x.yml: [0].targets: must be a list, got 'a'"),
        (b"[{targets: [8000]}]", "x.yml", "x.yml: [0].targets[0]: must be HOST:PORT"),
        (b"[{labels: [pod]}]", "x.yml", "x.yml: [0].labels: must be a mapping"),
        (b"[{labels: {pod: [a]}}]", "x.yml", "x.yml: [0].labels.pod: must be text"),
        (b"[{labels: {pod: yes}}]", "x.yml", "x.yml: [0].labels.pod: must be text"),
        (b"[{targets: [a], targets: [b]}]", "x.yml", "x.yml: line 1: key 'targets'"),
        (b" " * MAX_BYTES + b"[]", "x.json", f"x.json: larger than {MAX_BYTES} bytes"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(
    data: bytes, name: str, message: str
) -> None:
    """What no file_sd file may hold is an error that says where."""
    with pytest.raises(ConfigError) as caught:
        parse_targets(data, name)
    assert str(caught.value).startswith(message)


def test_a_file_of_targets_sees_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write targets must not learn what the environment holds."""
    monkeypatch.setenv("GOODPUT_TEST_SECRET", "hunter2")
    data = b'[{targets: ["$(GOODPUT_TEST_SECRET):80"]}]'
    (found,) = parse_targets(data, "x.yml")
    assert found.address == "$(GOODPUT_TEST_SECRET):80"
    sources, faults = engine_sources(GROUP, [found])
    assert sources == ()
    assert [fault.reason for fault in faults] == ["bad_target"]


def test_a_target_has_the_entry_s_settings_and_a_url_of_its_own() -> None:
    """Scheme and path come from the labels, else from the entry."""
    sources, faults = engine_sources(GROUP, FOUND)
    assert faults == ()
    assert [source.url for source in sources] == [
        "http://a:8000/metrics",
        "http://b:8000/metrics",
        "https://c/engine/metrics",
    ]
    assert {source.interval for source in sources} == {5.0}
    assert all(source.declared == {"max_num_seqs": 8} for source in sources)
    assert [source.labels for source in sources] == [
        {"pod": "vllm-0", "node": "worker-1"},
        {"pod": "vllm-0", "node": "worker-1"},
        {"node": "7"},
    ]


def test_an_entry_s_scheme_and_path_hold_where_labels_say_nothing() -> None:
    """Also for a DNS name; a path without its slash gets one, as in Prometheus."""
    group = EngineGroup(
        EngineSource("dns", ""), DnsSd("x", 1, scheme="https", metrics_path="/m")
    )
    sources, _ = engine_sources(
        group, [Found("[::1]:1"), Found("a:1", metrics_path="n", scheme="http")]
    )
    assert [source.url for source in sources] == ["https://[::1]:1/m", "http://a:1/n"]


def test_names_are_of_pods_where_these_are_unique() -> None:
    """Two targets of a pod, or none known, have their address as name."""
    assert names(
        Found("a:1", pod="p"), Found("a:2", pod="q"), Found("b:1", pod="q"), Found("c")
    ) == ["fleet/p", "fleet/a:2", "fleet/b:1", "fleet/c"]


def test_pages_of_one_address_are_told_apart() -> None:
    """Where the address is not enough the name is the whole URL."""
    assert names(
        Found("a:1", metrics_path="/1"), Found("a:1", metrics_path="/2"), Found("b:1")
    ) == ["fleet/http://a:1/1", "fleet/http://a:1/2", "fleet/b:1"]


def test_a_pod_called_like_an_address_is_told_apart() -> None:
    """No two targets ever have the same name."""
    assert names(Found("a:1", pod="b:1"), Found("b:1")) == [
        "fleet/http://a:1/metrics",
        "fleet/http://b:1/metrics",
    ]


def test_the_same_url_counts_once() -> None:
    """The labels of the first are taken."""
    sources, _ = engine_sources(
        GROUP, [Found("a:1", pod="p"), Found("b:1"), Found("a:1", pod="q")]
    )
    assert [source.name for source in sources] == ["fleet/p", "fleet/b:1"]


@pytest.mark.parametrize(
    "target",
    [
        Found(""),
        Found("a:"),
        Found("a:0"),
        Found("a:65536"),
        Found("a:http"),
        Found("::1"),
        Found("[::1]:1:1"),
        Found("[fe80::1%eth0]:1"),
        Found("http://a:1"),
        Found("a:1/metrics"),
        Found("user:hunter2@a:1"),
        Found("a b:1"),
        Found("a\n:1"),
        Found("a:1", scheme="ftp"),
        Found("a:1", metrics_path="/a b"),
        Found("a:1", metrics_path="/a\x00"),
        Found("a:1", pod="a\nb"),
        Found("a:1", node="\ud800"),
        Found("a" * (MAX_CHARACTERS + 1)),
        Found("a:1", pod="p" * (MAX_CHARACTERS + 1)),
        Found("a:1", metrics_path="/" + "p" * MAX_CHARACTERS),
    ],
)
def test_what_cannot_be_scraped_is_left_out_and_told(target: Found) -> None:
    """One bad target costs none of the others, and shows no password."""
    sources, faults = engine_sources(GROUP, [target, Found("good:1"), target])
    assert [source.name for source in sources] == ["fleet/good:1"]
    assert [fault.reason for fault in faults] == ["bad_target"]
    assert faults[0].detail.endswith("and 1 more cannot be scraped")
    assert "hunter2" not in faults[0].detail


def test_the_longest_name_that_is_allowed_is_used() -> None:
    """The limit itself is no fault."""
    pod = "p" * MAX_CHARACTERS
    assert names(Found("a:1", pod=pod)) == [f"fleet/{pod}"]


def test_there_is_a_limit_of_targets() -> None:
    """Beyond it the first ones are used, and it is told."""
    found = [Found(f"a{n}:1") for n in range(MAX_TARGETS + 1)]
    sources, faults = engine_sources(GROUP, found)
    assert [source.name for source in sources] == [
        f"fleet/a{n}:1" for n in range(MAX_TARGETS)
    ]
    assert faults == (
        Fault("too_many", "1001 targets, of which the first 1000 are used"),
    )
    assert engine_sources(GROUP, found[:-1])[1] == ()
