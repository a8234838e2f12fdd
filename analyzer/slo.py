"""SLO classes: which requests they hold for, when one is good, and how many must be.

A *criterion* is one latency condition of a request; the *objective* is the share of
counted requests that must meet all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from analyzer.presets import PRESETS
from analyzer.strict import ConfigError, Node

CRITERIA = ("ttft", "tpot", "max_gap", "e2e")
STAGES = ("gateway", "serving", "delivery", "margin")
NO_CLASS = "none"
MAX_CLASSES = 50
DEFAULT_WINDOW = "28d"
_PERCENTILE = re.compile(r"p([1-9]?[0-9](?:\.[0-9]+)?)\Z")
_NAME = r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}"


@dataclass(frozen=True, slots=True)
class Threshold:
    """The latency a criterion allows: base seconds, plus some per prompt token."""

    seconds: float
    per_prompt_token: float = 0.0

    def at(self, prompt_tokens: float) -> float:
        """Returns the seconds allowed for a prompt of that many tokens."""
        return self.seconds + self.per_prompt_token * prompt_tokens


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a class takes: all conditions given must hold.

    Models, routes and tenants are shell-style patterns; headers map a lower-case
    name to patterns; the prompt range is inclusive, in tokens.
    """

    models: tuple[str, ...] = ("*",)
    routes: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prompt_tokens: tuple[float, float] | None = None

    @property
    def model_only(self) -> bool:
        """Whether the model alone decides, so that engine metrics can be judged."""
        return not (self.routes or self.tenants or self.headers or self.prompt_tokens)

    def takes_model(self, names: Collection[str]) -> bool:
        """Whether a model known by any of *names* (aliases, adapters) matches."""
        return any(fnmatchcase(n, p) for n in names for p in self.models)


@dataclass(frozen=True, slots=True)
class SloClass:
    """One class of requests with its criteria, objective and compliance window.

    `good` maps a criterion to its threshold; `percentiles` maps (criterion, "p95")
    to seconds; `stages` maps a stage to its latency budget in seconds.
    """

    name: str
    match: Match
    good: Mapping[str, Threshold]
    objective: float
    window_seconds: float
    percentiles: Mapping[tuple[str, str], float] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The class that judges a model's engine metrics, or why none does."""

    slo_class: SloClass | None
    reason: str = ""


def assign(classes: Iterable[SloClass], names: Collection[str]) -> Assignment:
    """Returns the class that all requests of a model fall into.

    Engine metrics know the model alone. A class that also asks for a tenant, route,
    header or prompt length takes an unknown part of them, and so does what comes
    after it: then there is no class, and the reason names it.
    """
    for slo_class in classes:
        if not slo_class.match.takes_model(names):
            continue
        if slo_class.match.model_only:
            return Assignment(slo_class)
        return Assignment(
            None,
            f"class {slo_class.name} matches on more than the model, which engine "
            "metrics cannot tell apart; it needs a request log",
        )
    return Assignment(None, "no class matches this model")


def read_classes(node: Node) -> tuple[SloClass, ...]:
    """Returns the classes of the `slo_classes` list. Raises ConfigError."""
    classes: list[SloClass] = []
    for item in node.items(at_most=MAX_CLASSES):
        slo_class = _read_class(item)
        if any(known.name == slo_class.name for known in classes):
            raise ConfigError(
                f"{item.path}.name", f"{slo_class.name!r} is given twice", item.file
            )
        classes.append(slo_class)
    return tuple(classes)


def _read_class(node: Node) -> SloClass:
    keys = ("name", "match", "good", "objective", "window", "percentiles", "stages")
    members = node.mapping(optional=(*keys, "preset"))
    base: Mapping[str, object] = {}
    if "preset" in members:
        base = PRESETS[members["preset"].choice(tuple(PRESETS))].values
        merged = {**base, **{k: m.value for k, m in members.items() if k != "preset"}}
        members = Node(merged, node.path, node.file).mapping(optional=keys)
    for name in ("name", "good", "objective"):
        if name not in members:
            raise node.error(f"needs {name!r}, or a preset that has it")
    name = members["name"].text(
        pattern=_NAME, what="a name of letters, digits and _ . - (at most 63)"
    )
    if name == NO_CLASS:
        raise members["name"].error(f"{NO_CLASS!r} is the name of requests in no class")
    window = members.get("window", Node(DEFAULT_WINDOW, "window", node.file))
    return SloClass(
        name=name,
        match=_read_match(members["match"]) if "match" in members else Match(),
        good=_read_good(members["good"]),
        objective=members["objective"].ratio(),
        window_seconds=window.duration(minimum=3600.0),
        percentiles=_read_percentiles(members.get("percentiles")),
        stages=_read_stages(members.get("stages")),
    )


def _read_match(node: Node) -> Match:
    members = node.mapping(
        optional=("model", "route", "tenant", "header", "prompt_tokens")
    )
    headers: dict[str, tuple[str, ...]] = {}
    if "header" in members:
        for name, value in members["header"].members().items():
            if name.lower() in headers:
                raise value.error("is given twice; the case of names does not count")
            headers[name.lower()] = value.texts()
    prompt: tuple[float, float] | None = None
    if "prompt_tokens" in members:
        limits = members["prompt_tokens"].mapping(optional=("min", "max"))
        if not limits:
            raise members["prompt_tokens"].error("needs min, max or both")
        low = limits["min"].integer(minimum=0) if "min" in limits else 0
        high = float(limits["max"].integer()) if "max" in limits else float("inf")
        if low > high:
            raise members["prompt_tokens"].error(f"min {low} is above max {high:g}")
        prompt = (float(low), high)
    return Match(
        models=members["model"].texts() if "model" in members else ("*",),
        routes=members["route"].texts() if "route" in members else (),
        tenants=members["tenant"].texts() if "tenant" in members else (),
        headers=headers,
        prompt_tokens=prompt,
    )


def matched_headers(classes: Iterable[SloClass]) -> tuple[str, ...]:
    """Returns the request headers that *classes* match on, in lower case."""
    return tuple(sorted({name for c in classes for name in c.match.headers}))


def _by_criterion(node: Node) -> dict[str, Node]:
    members = node.mapping(optional=(*CRITERIA, "itl"))
    if "itl" in members and "tpot" in members:
        raise members["itl"].error("is another name of tpot; give one of them")
    return {"tpot" if name == "itl" else name: m for name, m in members.items()}


def _read_good(node: Node) -> dict[str, Threshold]:
    members = _by_criterion(node)
    good: dict[str, Threshold] = {}
    for criterion, value in members.items():
        if isinstance(value.value, dict):
            if criterion != "ttft":
                raise value.error("only ttft may grow with the prompt")
            parts = value.mapping(required=("base", "per_prompt_token"))
            good[criterion] = Threshold(
                parts["base"].duration(), parts["per_prompt_token"].duration()
            )
        else:
            good[criterion] = Threshold(value.duration())
    if not good:
        raise node.error(f"needs at least one criterion of {', '.join(CRITERIA)}")
    return {name: good[name] for name in CRITERIA if name in good}


def _read_percentiles(node: Node | None) -> dict[tuple[str, str], float]:
    result: dict[tuple[str, str], float] = {}
    if node is None:
        return result
    for criterion, levels in _by_criterion(node).items():
        for level, value in levels.members().items():
            if percentile(level) is None:
                raise value.error("must be named p50, p95, p99.9 and so on")
            result[criterion, level] = value.duration()
    return result


def percentile(level: str) -> float | None:
    """Returns the quantile that `p99.9` means (0.999), None if it means none."""
    match = _PERCENTILE.match(level)
    value = float(match[1]) / 100 if match else 0.0
    return value if 0 < value < 1 else None


def _read_stages(node: Node | None) -> dict[str, float]:
    if node is None:
        return {}
    return {k: v.duration() for k, v in node.mapping(optional=STAGES).items()}
