"""SLO classes: who falls into which, presets, thresholds and durations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.accrual import class_of
from analyzer.config import parse_config
from analyzer.presets import PRESETS
from analyzer.slo import (
    CRITERIA,
    Match,
    SloClass,
    Threshold,
    assign,
    percentile,
    read_classes,
)
from analyzer.strict import (
    MAX_DURATION,
    UNITS,
    Node,
    format_duration,
    parse,
    parse_duration,
)


def classes(text: str) -> tuple[SloClass, ...]:
    """Returns the classes of a YAML list whose entries lack criteria and objective."""
    document = parse(text).value
    full = [{"good": {"ttft": "1s"}, "objective": 0.95, **entry} for entry in document]
    return read_classes(Node(full, "slo_classes", ""))


# Assignment.


def test_the_first_class_that_takes_the_model_judges_it() -> None:
    """Order decides between classes that both match."""
    found = classes(
        """
        - {name: code, match: {model: "code-*"}}
        - {name: everything}
        - {name: never, match: {model: "code-7b"}}
        """
    )
    first = assign(found, ["code-7b"])
    assert (first.slo_class, first.reason) == (found[0], "")
    assert assign(found, ["chat-7b"]).slo_class == found[1]


def test_without_a_matching_class_there_is_a_reason() -> None:
    """A model that no class names is in none."""
    found = classes('[{name: code, match: {model: ["code-*", "starcoder"]}}]')
    assert assign(found, ["chat-7b"]).slo_class is None
    assert assign(found, ["chat-7b"]).reason == "no class matches this model"
    assert assign((), ["chat-7b"]).reason == "no class matches this model"
    assert assign(found, ["starcoder"]).slo_class == found[0]


@pytest.mark.parametrize(
    "condition",
    [
        "tenant: pro",
        "route: /v1/chat/completions",
        "header: {x-tier: gold}",
        "prompt_tokens: {min: 1000}",
        "prompt_tokens: {min: 0}",
    ],
)
def test_a_class_that_asks_for_more_than_the_model_shadows_later_ones(
    condition: str,
) -> None:
    """Engine metrics cannot tell its part from the rest: none judges, with reason."""
    found = classes(
        f"""
        - {{name: other, match: {{model: "other"}}}}
        - {{name: special, match: {{model: "m*", {condition}}}}}
        - {{name: rest}}
        """
    )
    assert not found[1].match.model_only
    shadowed = assign(found, ["m1"])
    assert shadowed.slo_class is None
    assert shadowed.reason == (
        "class special matches on more than the model, which engine metrics cannot "
        "tell apart; it needs a request log"
    )
    assert assign(found, ["other"]).slo_class == found[0]
    assert assign(found, ["x"]).slo_class == found[2]


def test_a_shadowing_class_before_does_not_hide_an_earlier_match() -> None:
    """What comes first and needs the model alone still judges."""
    found = classes("[{name: all}, {name: pro, match: {tenant: pro}}]")
    assert assign(found, ["m"]).slo_class == found[0]


@pytest.mark.parametrize(
    ("pattern", "model", "taken"),
    [
        ("*", "org/model", True),
        ("org/*", "org/sub/model", True),
        ("llama-?b", "llama-8b", True),
        ("llama-?b", "llama-70b", False),
        ("llama-[78]b", "llama-8b", True),
        ("Llama", "llama", False),
        ("llama", "llama-8b", False),
    ],
)
def test_models_match_as_shell_patterns(
    pattern: str, model: str, *, taken: bool
) -> None:
    """Patterns cover the whole name, slashes included, and mind the case."""
    assert Match(models=(pattern,)).takes_model([model]) is taken


def test_aliases_and_adapters_find_the_class_of_the_served_name() -> None:
    """A class that names an alias judges the model it stands for, and only that."""
    found = classes('[{name: gold, match: {model: "gold-*"}}]')
    aliases = {"gold-chat": "served", "gold-code": "another"}
    assert class_of("served", found, aliases) == (found[0], "")
    assert class_of("third", found, aliases)[0] is None
    assert class_of("served", found, {})[0] is None


# Criteria.


def test_criteria_stand_in_their_own_order() -> None:
    """However the file orders them, rows come out as ttft, tpot, max_gap, e2e."""
    text = "[{name: a, good: {e2e: 10s, max_gap: 1s, itl: 50ms, ttft: 1s}}]"
    assert tuple(classes(text)[0].good) == CRITERIA


def test_a_threshold_may_grow_with_the_prompt() -> None:
    """Base plus the rate for each prompt token, in seconds."""
    text = "[{name: a, good: {ttft: {base: 300ms, per_prompt_token: 0.2ms}}}]"
    threshold = classes(text)[0].good["ttft"]
    assert threshold.at(0) == 0.3
    assert threshold.at(10_000) == pytest.approx(2.3)
    assert Threshold(1.0).at(1e6) == 1.0
    assert Threshold(0.3, 0.001).at(math.inf) == math.inf


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_complete_class_with_its_source(name: str) -> None:
    """Each preset loads on its own and says where its figures come from."""
    (slo_class,) = parse_config(f"slo_classes: [{{preset: {name}}}]").slo_classes
    assert slo_class.name == name
    assert slo_class.match.model_only
    assert slo_class.good
    assert 0.5 < slo_class.objective < 1
    assert slo_class.window_seconds == 28 * 86400
    assert len(PRESETS[name].source) > 20


@pytest.mark.parametrize(
    ("level", "quantile"),
    [
        ("p50", 0.5),
        ("p95", 0.95),
        ("p99.9", 0.999),
        ("p5", 0.05),
        ("p0.1", 0.001),
        ("p100", None),
        ("p0", None),
        ("p0.0", None),
        ("p", None),
        ("95", None),
        ("P95", None),
        ("p095", None),
        ("p95.", None),
        ("p.5", None),
        ("p-5", None),
        ("p9e1", None),
        ("p9_5", None),
        ("p95 ", None),
        ("p95\n", None),
        ("pnan", None),
        ("p\u0669\u0665", None),
        ("p99.99999999999999999999", None),
    ],
)
def test_percentiles_are_named_by_p_and_a_number(
    level: str, quantile: float | None
) -> None:
    """Between 0 and 100 exclusively, in plain digits."""
    found = percentile(level)
    assert found == (None if quantile is None else pytest.approx(quantile))


# Durations.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("0.05s", 0.05),
        ("1.5m", 90.0),
        ("24h", 86400.0),
        ("28d", 2419200.0),
        ("4w", 2419200.0),
        ("0s", 0.0),
        ("007s", 7.0),
        ("1", None),
        ("s", None),
        ("", None),
        (".5s", None),
        ("1.s", None),
        ("-1s", None),
        ("+1s", None),
        ("1 s", None),
        ("1s ", None),
        ("1s\n", None),
        ("1S", None),
        ("1e3s", None),
        ("1h30m", None),
        ("1us", None),
        ("1y", None),
        ("\u0663s", None),
        ("infs", None),
    ],
)
def test_durations_are_a_plain_number_and_a_unit(
    text: str, seconds: float | None
) -> None:
    """Decimal digits and one of ms, s, m, h, d, w, with nothing around them."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.05, "50ms"),
        (0.0002, "0.2ms"),
        (0.00001, "0.01ms"),
        (1.0, "1s"),
        (1.5, "1500ms"),
        (2.50045, "2.50045s"),
        (90.0, "90s"),
        (120.0, "2m"),
        (3600.0, "1h"),
        (86400.0, "1d"),
        (2419200.0, "4w"),
        (1234567.8901, "1234567.8901s"),
        (0.0, "0s"),
    ],
)
def test_durations_are_written_in_the_largest_whole_unit(
    seconds: float, text: str
) -> None:
    """Fractions stay in milliseconds or seconds, without an exponent."""
    assert format_duration(seconds) == text


@given(st.floats(1e-9, MAX_DURATION))
def test_a_written_duration_reads_back_as_the_same(seconds: float) -> None:
    """Writing loses no more than one part in 10^11."""
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-11)


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_read_duration_writes_as_an_equal_one(count: int, unit: str) -> None:
    """Whole counts of any unit survive both ways, and read exactly."""
    text = f"{count}{unit}"
    seconds = parse_duration(text)
    assert seconds == count * UNITS[unit]
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-12)
