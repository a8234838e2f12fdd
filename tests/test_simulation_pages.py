"""The simulated pages and logs look like those of the real programs."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path

import pytest
from episodes import DIRECTORY
from simulated_site import BEGIN, MODEL, played

from analyzer.capacity.outcome import Outcome, Status
from analyzer.capacity.workload import Request
from analyzer.exposition import parse_text
from analyzer.gateways.envoy import envoy
from analyzer.gateways.record import RequestRecord
from analyzer.simulation.clock import Clock
from analyzer.simulation.envoy_log import log_line
from analyzer.sources.recording import read_scrapes

# Values of these labels are the server's own; the page's shape is the rest.
OWN = {"model_name", "handler", "version", "minor", "patchlevel", "le"}
Shape = Mapping[str, tuple[str, frozenset[tuple[tuple[str, str], ...]]]]


def shape(text: str) -> Shape:
    """Returns each family's type, and the label sets of its series."""
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for sample in parse_text(text):
        own = sample.labels if "cache_config" in sample.name else OWN
        labels = tuple((k, "" if k in own else v) for k, v in sample.labels.items())
        found.setdefault(sample.name, set()).add(labels)
    return {
        name: (kinds.get(name, ""), frozenset(labels)) for name, labels in found.items()
    }


def bounds(text: str) -> dict[str, list[str]]:
    """Returns the bounds of each histogram, in the page's order."""
    found: dict[str, list[str]] = {}
    for sample in parse_text(text):
        labels = dict(sample.labels)
        if "le" in labels and labels.get("handler") != "/metrics":
            found.setdefault(sample.name, []).append(labels["le"])
    return found


def real_page() -> str:
    """Returns a page of vLLM 0.32 that has answered and refused requests."""
    scrapes = [s.text for s in read_scrapes(DIRECTORY / "mixed-a") if s.text]
    return scrapes[-1]


def simulated_page() -> str:
    """Returns a simulated page after as many."""
    text = played("healthy", seed=1, seconds=100).scrapes[-1].text
    assert text is not None
    return text


def test_a_page_has_vllms_families_types_and_labels() -> None:
    """Every name of vLLM 0.32, no other, with its type and its label sets."""
    real, simulated = shape(real_page()), shape(simulated_page())
    assert simulated.keys() == real.keys()
    for name, expected in real.items():
        assert simulated[name] == expected, name


def test_a_page_has_vllms_families_in_its_order() -> None:
    """The order of families is that of a real page."""

    def order(text: str) -> list[str]:
        return [li.split()[2] for li in text.splitlines() if li.startswith("# TYPE ")]

    assert order(simulated_page()) == order(real_page())


def test_a_pages_histograms_have_vllms_bounds() -> None:
    """The same bounds, but for token counts, which end with the model's length."""
    real, simulated = bounds(real_page()), bounds(simulated_page())
    assert simulated.keys() == real.keys()
    for name, expected in real.items():
        if "tokens_bucket" in name and "iteration" not in name:
            length = len(expected) - 1  # the recorded model's is 2048 tokens
            assert simulated[name][:length] == expected[:length], name
        else:
            assert simulated[name] == expected, name


def outcome(status: Status, **known: float | None) -> Outcome:
    """Returns a request of a second, as far as its end lets it be known."""
    request = Request(7, 10.0, 300, 40, tenant="chat")
    times: dict[str, float | None] = {
        "forwarded": 10.002,
        "queued": 10.006,
        "scheduled": 10.01,
        "first_token": 10.2,
        "last_token": 11.0,
        "output_tokens": 40,
        "max_gap": 0.03,
        "replica": 0,
    }
    times.update(known)
    return Outcome(request, status, 11.0, **times)  # type: ignore[arg-type]


NOTHING = {
    "queued": None,
    "scheduled": None,
    "first_token": None,
    "last_token": None,
    "output_tokens": 0,
    "max_gap": 0.0,
}


def read(found: Outcome) -> RequestRecord:
    """Returns what the product reads from the line of a request."""
    ended = Clock(BEGIN).wall(found.ended)
    line = log_line(found, model=MODEL, host="10.0.0.1:8000", ended=ended)
    record = envoy().parse(line)
    assert record is not None
    return record


def test_a_line_tells_the_requests_times_and_tokens() -> None:
    """What the gateway could see of a complete answer, to the microsecond."""
    record = read(outcome(Status.COMPLETE))
    assert (record.outcome, record.status) == ("ok", 200)
    assert record.start == pytest.approx(BEGIN + 10.0, abs=1e-6)
    assert record.ttft == pytest.approx(0.2, abs=2e-6)
    assert record.tpot == pytest.approx(0.8 / 39, abs=1e-6)
    assert record.e2e == pytest.approx(1.0, abs=1e-6)
    assert record.max_gap == pytest.approx(0.03, abs=1e-6)
    assert record.header_time == pytest.approx(0.006, abs=1e-6)
    assert (record.prompt_tokens, record.completion_tokens) == (300, 40)
    assert (record.model, record.tenant) == (MODEL, "chat")


def test_a_line_without_the_lua_filters_members_tells_the_same() -> None:
    """The first body byte and the upstream's end stand for the tokens then."""
    ended = Clock(BEGIN).wall(11.0)
    found = outcome(Status.COMPLETE)
    line = json.loads(log_line(found, model=MODEL, host="10.0.0.1:8000", ended=ended))
    plain = {name: value for name, value in line.items() if name[:4] != "tok_"}
    record = envoy().parse(json.dumps(plain).encode())
    assert record is not None
    assert record.ttft_kind == "first_body_byte"
    assert record.ttft == pytest.approx(0.2, abs=2e-6)
    assert record.tpot == pytest.approx(0.8 / 39, abs=1e-6)


@pytest.mark.parametrize(
    ("status", "known", "expected"),
    [
        (Status.LEFT, {}, ("client_abort", 200)),
        (Status.LEFT, NOTHING, ("client_abort", None)),
        (Status.BROKEN, {}, ("upstream_cut", 200)),
        (Status.BROKEN, NOTHING, ("http_error", 503)),
        (Status.REJECTED, NOTHING, ("http_error", 503)),
        (Status.INVALID, NOTHING, ("http_error", 400)),
        (
            Status.UNREACHABLE,
            {**NOTHING, "forwarded": None, "replica": None},
            ("http_error", 503),
        ),
    ],
)
def test_a_line_tells_how_a_request_ended(
    status: Status,
    known: dict[str, float | None],
    expected: tuple[str, int | None],
) -> None:
    """Leaving, breaking and refusing leave Envoy's flags and codes."""
    record = read(outcome(status, **known))
    assert (record.outcome, record.status) == expected


def test_a_line_has_the_members_of_the_shipped_configuration() -> None:
    """No member but those that deploy/gateways/envoy writes, and all of them."""
    line = played("healthy", seed=1, seconds=100).lines[0]
    written = Path("deploy/gateways/envoy/envoy.yaml").read_text(encoding="utf-8")
    part = written.partition("json_format:")[2].partition("http_filters:")[0]
    names = {
        entry.strip().partition(":")[0]
        for entry in part.splitlines()
        if ":" in entry and not entry.strip().startswith("#")
    }
    assert json.loads(line).keys() == names


def test_a_recorded_line_has_the_same_types() -> None:
    """Members that a real Envoy wrote with its Lua filter, as it wrote them."""
    path = Path("tests/fixtures/gateway/envoy-lua/access.log.xz")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        real = [json.loads(line) for line in file]
    ours = [json.loads(li) for li in played("healthy", seed=1, seconds=100).lines]
    for name in ours[0]:
        seen = {type(line[name]) for line in real}
        assert {type(line[name]) for line in ours} <= seen | {type(None)}, name
