"""Quantiles, fractions, sums and differences equal those of a real Prometheus."""

from __future__ import annotations

import math
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import requests
from episodes import DIRECTORY

from analyzer.exposition import parse_text
from analyzer.histogram import Histogram, total
from analyzer.sources.recording import read_scrapes

EARLIER = 1_700_000_000
LATER = EARLIER + 60
QUANTILES = (-0.1, 0, 1e-6, 0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1, 1.1, math.nan)
START_SECONDS = 60.0

Case = tuple[Histogram, Histogram]  # at EARLIER and at LATER

EDGES = [
    Histogram((math.inf,), (7.0,)),
    Histogram((1.0, 2.0, math.inf), (0.0, 0.0, 0.0)),
    Histogram((1.0, 2.0, math.inf), (0.0, 4.0, 8.0)),
    Histogram((1.0, 2.0, math.inf), (0.0, 0.0, 8.0)),
    Histogram((0.0, 2.0, math.inf), (3.0, 4.0, 4.0)),
    Histogram((-2.0, -1.0, 1.0, math.inf), (3.0, 4.0, 9.0, 10.0)),
    Histogram((1.0, 2.0, 4.0, math.inf), (6.0, 4.0, 8.0, 8.0)),
    Histogram((1.0, 2.0, math.inf), (4.0, 8.0, 6.0)),
    Histogram((1.0, 2.0, math.inf), (4.0, 8.0, 0.0)),
    Histogram((1e-9, 1e9, math.inf), (1e-3, 1e15, 1e15)),
]


def random_histogram(rng: random.Random, bounds: tuple[float, ...]) -> Histogram:
    """Returns a histogram with empty, small, large and fractional buckets."""
    unit = rng.choice((1.0, 1 / 3, 1e6))
    steps = [rng.choice((0, 0, 1, rng.randint(1, 1000))) * unit for _ in bounds]
    return Histogram(bounds, tuple(sum(steps[: n + 1]) for n in range(len(steps))))


def random_cases(rng: random.Random, number: int) -> list[Case]:
    """Returns histograms on random bounds, each with a later state."""
    cases = []
    for _ in range(number):
        finite = {rng.lognormvariate(0, 3) for _ in range(rng.randint(1, 25))}
        bounds = (*sorted(finite), math.inf)
        earlier = random_histogram(rng, bounds)
        cases.append((earlier, earlier + random_histogram(rng, bounds)))
    return cases


def histograms_of(text: str) -> dict[str, Histogram]:
    """Returns every histogram of a page by its name and labels."""
    buckets: dict[str, dict[float, float]] = {}
    for sample in parse_text(text):
        if sample.name.endswith("_bucket"):
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            found = buckets.setdefault(f"{sample.name}{labels}", {})
            found[float(sample.labels["le"])] = sample.value
    return {
        key: Histogram(tuple(sorted(found)), tuple(found[b] for b in sorted(found)))
        for key, found in buckets.items()
    }


def recorded_cases(episode: str, *, first: int, last: int) -> list[Case]:
    """Returns the histograms of a real vLLM at two moments of an episode."""
    pages = [s.text for s in read_scrapes(DIRECTORY / episode) if s.text is not None]
    earlier, later = histograms_of(pages[first]), histograms_of(pages[last])
    return [(earlier[key], later[key]) for key in sorted(earlier.keys() & later.keys())]


def cases() -> list[Case]:
    """Returns edge cases, random histograms and recorded ones."""
    return [
        *((histogram, histogram) for histogram in EDGES),
        *random_cases(random.Random(20231114), 60),
        *recorded_cases("overload-a", first=20, last=80),
        *recorded_cases("dp2-a", first=20, last=60),
    ]


def spelled(bound: float) -> str:
    """Returns a bound as the label `le` has it."""
    return "+Inf" if bound == math.inf else repr(bound)


def openmetrics(cases: Sequence[Case]) -> str:
    """Returns both states of every case as OpenMetrics text with time stamps."""
    lines = ["# TYPE h histogram"]
    for number, states in enumerate(cases):
        for at, state in zip((EARLIER, LATER), states, strict=True):
            lines += [
                f'h_bucket{{case="{number}",le="{spelled(bound)}"}} {count!r} {at}'
                for bound, count in zip(state.bounds, state.counts, strict=True)
            ]
    return "\n".join((*lines, "# EOF\n"))


class Prometheus:
    """Answers instant queries from a server's HTTP API."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between us and a local server

    def ready(self) -> bool:
        """Whether the server answers queries yet."""
        try:
            return self._session.get(f"{self._url}/-/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    def query(self, expression: str) -> dict[str, float]:
        """Returns the values of *expression* at LATER by the label `case`."""
        answer = self._session.post(
            f"{self._url}/api/v1/query",
            {"query": expression, "time": str(LATER)},
            timeout=30,
        ).json()
        assert answer["status"] == "success", (expression, answer)
        return {
            row["metric"].get("case", ""): float(row["value"][1])
            for row in answer["data"]["result"]
        }

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()


@contextmanager
def serving(
    need_tool: Callable[[str], str], directory: Path, text: str
) -> Iterator[Prometheus]:
    """Gives a Prometheus that holds *text*."""
    source = directory / "cases.om"
    source.write_text(text, encoding="utf-8")
    data = directory / "data"
    subprocess.run(
        [
            need_tool("promtool"),
            *("tsdb", "create-blocks-from", "openmetrics"),
            str(source),
            str(data),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    config = directory / "prometheus.yml"
    config.write_text("scrape_configs: []\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                need_tool("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    prometheus = Prometheus(f"http://{address}")
    try:
        deadline = time.monotonic() + START_SECONDS
        while not prometheus.ready():
            said = (directory / "log").read_text(encoding="utf-8", errors="replace")
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
        yield prometheus
    finally:
        prometheus.close()
        process.terminate()
        process.wait(timeout=30)


def assert_same(found: dict[str, float], wanted: dict[str, float | None]) -> None:
    """Asserts that Prometheus's values are ours, where NaN is our None."""
    assert found.keys() == wanted.keys()
    for case, value in wanted.items():
        assert found[case] == pytest.approx(
            math.nan if value is None else value, rel=1e-9, abs=0, nan_ok=True
        ), f"case {case}"


def numbered(values: Sequence[float | None]) -> dict[str, float | None]:
    """Returns values by the case they belong to."""
    return {str(number): value for number, value in enumerate(values)}


def check_quantiles(prometheus: Prometheus, cases: Sequence[Case]) -> None:
    """Compares quantiles of totals and of what they grew by."""
    for q in QUANTILES:
        spelled_q = "NaN" if math.isnan(q) else repr(q)
        assert_same(
            prometheus.query(f"histogram_quantile({spelled_q}, h_bucket)"),
            numbered([later.quantile(q) for _, later in cases]),
        )
        assert_same(
            prometheus.query(
                f"histogram_quantile({spelled_q}, h_bucket - h_bucket offset 60s)"
            ),
            numbered([(later - earlier).quantile(q) for earlier, later in cases]),
        )


def check_fractions(prometheus: Prometheus, cases: Sequence[Case]) -> None:
    """Compares fractions with the same arithmetic on buckets in PromQL.

    Older servers, such as Debian's, know histogram_fraction for native histograms
    only. So a share at a bound is a ratio of two buckets, and one in the middle of a
    bucket the mean of the shares at its ends. Histograms with dips are left out,
    since PromQL does not raise them here.
    """
    shares: dict[str, dict[str, float | None]] = {}
    for number, (_, histogram) in enumerate(cases):
        if list(histogram.counts) != sorted(histogram.counts):
            continue
        case = str(number)
        finite = histogram.bounds[:-1]
        for bound in histogram.bounds:
            bucket = f'h_bucket{{le="{spelled(bound)}"}}'
            shares.setdefault(bucket, {})[case] = histogram.fraction(bound)
        for low, high in pairwise(finite):
            below = f'h_bucket{{case="{case}",le="{spelled(low)}"}}'
            above = f'h_bucket{{case="{case}",le="{spelled(high)}"}}'
            mean = f"({below} + ignoring (le) {above}) / 2"
            shares[mean] = {case: histogram.fraction((low + high) / 2)}
    for part, wanted in shares.items():
        chosen = "|".join(wanted)
        whole = f'h_bucket{{case=~"{chosen}",le="+Inf"}}'
        assert_same(prometheus.query(f"{part} / ignoring (le) {whole}"), wanted)


def check_sums(prometheus: Prometheus, cases: Sequence[Case]) -> None:
    """Compares quantiles of sums over cases that share their bounds."""
    by_bounds: dict[tuple[float, ...], dict[int, Histogram]] = {}
    for number, (_, histogram) in enumerate(cases):
        by_bounds.setdefault(histogram.bounds, {})[number] = histogram
    groups = [group for group in by_bounds.values() if len(group) > 1]
    assert len(groups) > 1
    for group in groups:
        chosen = "|".join(map(str, group))
        together = total(group.values())
        assert together is not None
        for q in (0.1, 0.5, 0.99):
            expression = f'sum by (le) (h_bucket{{case=~"{chosen}"}})'
            assert_same(
                prometheus.query(f"histogram_quantile({q}, {expression})"),
                {"": together.quantile(q)},
            )


@pytest.mark.slow
def test_figures_equal_those_of_a_real_prometheus(
    need_tool: Callable[[str], str], tmp_path: Path
) -> None:
    """The same queries on the same buckets give the same figures, to 1e-9."""
    stored = cases()
    with serving(need_tool, tmp_path, openmetrics(stored)) as prometheus:
        check_quantiles(prometheus, stored)
        check_fractions(prometheus, stored)
        check_sums(prometheus, stored)
