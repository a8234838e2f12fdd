"""Recordings of what binds: the time under each verdict, and one winner for routing.

A verdict may change every minute, and an alert whose label changes is another alert
that waits anew. So the label comes from a window of half an hour and longer, and the
winner stays until another one leads by a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.rules.advice import FIRST
from analyzer.rules.bounds import EVENTS
from analyzer.rules.requests import RATE, REQUESTS
from analyzer.rules.rule import (
    MODEL,
    TARGET,
    Options,
    Record,
    by,
    duration,
    newest,
    on,
)

SECONDS = "model:goodput_constraint_seconds:rate5m"
SHARE = "model:goodput_constraint:ratio_rate5m"
LEADING = "model:goodput_constraint_leading:ratio_rate5m"
OWN_LEADING = "model:goodput_own_constraint_leading:ratio_rate5m"
ADVICE = "cause:goodput_advice:info"
LEAST_SHARE = 0.05  # of the time, or what binds says nothing about the requests
LEAD = 0.1
NOT_BINDING = "none|unknown"
_CAUSE = ("family", "cause")
_SERVED = ("cluster", "model")


def rates(options: Options) -> list[Record]:
    """Returns the share of time under each verdict in 5 minutes, by target and model.

    The time is that of ranks: two ranks under a verdict for a second are two seconds.
    """
    per_target = "target:goodput_constraint_seconds:rate5m"
    rate = f"rate(goodput_constraint_seconds_total[{options.span(RATE)}])"
    target = (*TARGET, "model", *_CAUSE)
    return [
        Record(per_target, f"sum {by(target)} ({rate})"),
        Record(SECONDS, f"sum {by((*MODEL, *_CAUSE))} ({per_target})"),
        Record(SHARE, _share(SECONDS)),
    ]


def leading() -> list[Record]:
    """Returns the verdict that leads in 5 minutes, with what to do first as a label.

    It is what annotations look up; none where no engine is seen or nothing binds. A
    namespace without engines, as a gateway's, has that of another one.
    """
    found: list[Record] = [
        Record(
            ADVICE,
            "vector(1)",
            labels={"cause": cause, "advice": text},
        )
        for cause, text in FIRST.items()
    ]
    share = f'max {by((*MODEL, *_CAUSE))} ({SHARE}{{family!~"{NOT_BINDING}"}})'
    lead = f"topk {by(MODEL)} (1, {share} > {LEAST_SHARE:g})"
    advice = newest(ADVICE, ("cause",))
    known = f"{lead} * {on(('cause',))} group_left (advice) {advice}"
    own = f"{known}\nor {on(MODEL)} {lead}"
    keys = f"group {by(MODEL)} ({REQUESTS} unless {on(MODEL)} {SECONDS})"
    return [
        *found,
        Record(OWN_LEADING, own),
        Record(
            LEADING,
            f"{OWN_LEADING}\n"
            f"or {on(MODEL)} {keys}\n"
            f"* {on(_SERVED)} group_left (family, cause, advice) "
            f"topk {by(_SERVED)} (1, {OWN_LEADING})",
        ),
    ]


def _share(seconds: str) -> str:
    every = f"(sum {by(MODEL)} ({seconds}) > 0)"
    return f"{seconds} / {on(MODEL)} group_left () {every}"


def share_name(seconds: float) -> str:
    """Returns the name of the share of time under each verdict over a window."""
    return f"model:goodput_constraint:ratio_rate{duration(seconds)}"


def verdict_name(seconds: float) -> str:
    """Returns the name of the verdict of a window: 1, with the label `constraint`."""
    return f"model:goodput_constraint_verdict:winner{duration(seconds)}"


def windowed(windows: Iterable[float], options: Options) -> list[Record]:
    """Returns the shares over each window, and the family that wins it."""
    found = []
    for seconds in windows:
        # A verdict that was never given before has fewer points: sums, no averages.
        time = f"sum_over_time({SECONDS}[{options.span(seconds)}])"
        found.append(Record(share_name(seconds), _share(time)))
        found.extend(_winner(seconds, options))
    return found


def _winner(seconds: float, options: Options) -> list[Record]:
    share = share_name(seconds)
    winner = f"model:goodput_constraint_family:winner{duration(seconds)}"
    family = f'sum {by((*MODEL, "family"))} ({share}{{family!~"{NOT_BINDING}"}})'
    family = f"({family} > {LEAST_SHARE:g})"
    held = f"({family} + {LEAD:g} * ({winner} > bool 0))"
    lead = f"topk {by(MODEL)} (1, {held} or {family})"
    # One also where an earlier winner is still seen: vmalert may not end its series.
    own = f"topk {by(MODEL)} (1, {winner})"
    own = f'label_replace({own}, "constraint", "$1", "family", "(.+)")'
    own = f"group {by((*MODEL, 'constraint'))} ({own})"
    # As long as windows remember a model: an alert must not end for want of a label.
    seen = (f"max_over_time({r}[{options.span(seconds)}])" for r in (REQUESTS, EVENTS))
    keys = f"group {by(MODEL)} ({' or '.join(seen)})"
    elsewhere = f"sum {by((*_SERVED, 'constraint'))} ({own})"
    elsewhere = f"topk {by(_SERVED)} (1, {elsewhere})"
    unknown = f'label_replace({keys}, "constraint", "unknown", "", "")'
    match = on(MODEL)
    return [
        Record(winner, lead, "The winner so far has a tenth of the time in advance."),
        Record(
            verdict_name(seconds),
            f"{own}\n"
            f"or {match}\n"
            f"({keys} unless {match} {share})\n"
            f"* {on(_SERVED)} group_left (constraint) ({elsewhere} > bool 0)\n"
            f"or {match}\n"
            f"{unknown}",
            "Of the namespace itself; without engines there, of another one that "
            "serves the model: a gateway may have its own. One series a model, always.",
        ),
    ]
