"""What is the matter with a request log, and what to add to its gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.finding import Finding
from analyzer.gateways.advice import USAGE, Advice, advice
from analyzer.gateways.record import TtftKind
from analyzer.log_audit import REASONS, Answers, LogAudit
from analyzer.slo import SloClass
from analyzer.strict import format_duration

SOME = 0.05  # a share below it is no finding
MANY = 0.5
QUARTER_HOUR = 900.0
ZONE_SLACK = 30.0  # seconds between a record's end and the write of its file
LISTED = 5
WARNING, INFO = "warning", "info"
OWN_CLASS = (
    "have clients stream, or give answers that are not streamed a class of e2e alone, "
    "by their route, tenant or a header"
)
FORMATS_PAGE = "docs/gateway-setup.md has a configuration for each gateway"


def log_findings(
    found: LogAudit, classes: tuple[SloClass, ...], now: float
) -> tuple[Finding, ...]:
    """Returns the findings of an audit, those of reading first."""
    if not found.lines:
        return ()
    if found.format is None:
        message = f"no known format recognises one of {found.lines} lines"
        fix = f"set `format`, for lines of your own to custom; {FORMATS_PAGE}"
        return (Finding("not_recognised", WARNING, message, fix),)
    return (
        *_reading(found),
        *_clock(found, now),
        *_criteria(found, classes),
        *_requests(found, classes),
    )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})"


def _advised(code: str, severity: str, message: str, found: Advice | None) -> Finding:
    if found is None:
        return Finding(code, severity, message)
    return Finding(code, severity, message, found.text, found.file, found.snippet)


def _reading(found: LogAudit) -> Iterator[Finding]:
    unparsed = found.unparsed.total() - found.unparsed["stderr"]
    name = found.format.name if found.format else ""
    if found.looks_like:
        message = f"format is {name}, but the lines look like those of "
        message += found.looks_like
        yield Finding("other_format", WARNING, message, "set `format` to that or auto")
    elif unparsed > SOME * (found.lines - found.unparsed["stderr"]):
        reasons = ", ".join(
            f"{reason} {count}"
            for reason, count in found.unparsed.most_common()
            if reason != "stderr"
        )
        message = f"{_share(unparsed, found.lines)} lines cannot be parsed: {reasons}"
        yield Finding(
            "unparsed",
            WARNING,
            message,
            "compare the gateway's log format with the shipped one; wrong_value means "
            "that a field does not hold what its name says, such as another unit",
        )


def _clock(found: LogAudit, now: float) -> Iterator[Finding]:
    clock = found.clock
    if clock.future:
        message = f"{_share(clock.future, found.requests)} requests end in the future"
        message += f", by up to {clock.ahead:.1f} s"
        yield Finding(
            "future",
            WARNING,
            message,
            "keep the clocks of gateway and exporter by NTP; of stamps without a time "
            "zone, log those of UTC",
        )
    elif clock.last is not None and clock.written is not None:
        behind = min(clock.written, now) - clock.last
        zones = round(behind / QUARTER_HOUR)
        if zones >= 2 and abs(behind - zones * QUARTER_HOUR) < ZONE_SLACK:
            message = (
                "the last record ends about "
                f"{format_duration(zones * QUARTER_HOUR)} before the file was written"
            )
            fix = "when its stamps are of a local time zone, log those of UTC"
            yield Finding("zone", INFO, message, fix)


def _criteria(found: LogAudit, classes: Iterable[SloClass]) -> Iterator[Finding]:
    """Yields a finding for each criterion that cannot be evaluated as it should."""
    name = found.format.name if found.format else ""
    told = found.format.criteria if found.format else frozenset()
    wanted: dict[str, list[str]] = {}
    for slo_class in classes:
        for criterion in slo_class.good:
            wanted.setdefault(criterion, []).append(slo_class.name)
    for criterion, names in wanted.items():
        listed = ", ".join(names[:LISTED]) + (", …" if len(names) > LISTED else "")
        asked = f"{criterion} (asked for by {listed})"
        if criterion not in told:
            message = f"{asked} can never be evaluated: {name}'s log does not tell it"
            yield _advised("criterion_never", WARNING, message, advice(name, criterion))
            continue
        answers = _together(found.classes[each].criteria[criterion] for each in names)
        unknown = answers.unknown.total()
        if not answers.total or unknown <= SOME * answers.total:
            continue
        why = ", ".join(f"{n} {REASONS[r]}" for r, n in answers.unknown.most_common())
        message = f"{asked} is unknown for {_share(unknown, answers.total)} answers: "
        message += why
        code = "criterion_partly" if answers.known else "criterion_absent"
        main = answers.reason
        if main == "not_streamed":
            yield Finding(code, INFO, message, OWN_CLASS)
        elif not (main in ("no_usage", "bound") and _lacks_usage(found)):
            yield _advised(code, WARNING, message, advice(name, criterion))


def _lacks_usage(found: LogAudit) -> bool:
    """Whether so many streams have no usage that it is a finding of its own."""
    streams = found.with_usage + found.without_usage
    return found.without_usage > SOME * streams


def _together(parts: Iterable[Answers]) -> Answers:
    found = Answers()
    for part in parts:
        found.known += part.known
        found.unknown += part.unknown
    return found


def _requests(found: LogAudit, classes: tuple[SloClass, ...]) -> Iterator[Finding]:
    wanted = {criterion for slo_class in classes for criterion in slo_class.good}
    name = found.format.name if found.format else ""
    if _lacks_usage(found):
        severity = WARNING if wanted & {"tpot", "max_gap"} else INFO
        share = _share(found.without_usage, found.with_usage + found.without_usage)
        yield _usage(name, severity, f"{share} streams have no usage of the server")
    ended = found.judged - found.failed
    if found.unended > SOME * ended:
        share = _share(found.unended, ended)
        severity = WARNING if found.unended > MANY * ended else INFO
        message = f"{share} answers may have been cut: the log does not tell"
        yield _advised("ending", severity, message, advice(name, "ending"))
    if classes and found.classless > SOME * found.judged:
        share = _share(found.classless, found.judged)
        message = f"{share} requests match no class: {_models(found)}"
        fix = "add a class that takes them, the last one without `match`"
        if found.nameless > SOME * found.judged:
            fix += "; have the gateway log the model, by the header X-Model"
        yield Finding("no_class", WARNING, message, fix)
    if "ttft" in wanted and found.ttft_kinds[TtftKind.FIRST_BODY_BYTE]:
        message = (
            "ttft is the time to the first body byte: a comment of the server before "
            "the first token (--sse-keep-alive-interval) is taken for it"
        )
        yield _advised("first_body_byte", INFO, message, advice(name, "token"))


def _usage(name: str, severity: str, message: str) -> Finding:
    here = advice(name, "usage")
    if here is None:
        return Finding("no_usage", severity, message, USAGE)
    fix = f"{USAGE}; when the answers have it, {here.text}"
    return Finding("no_usage", severity, message, fix, here.file, here.snippet)


def counted_twice(other: str, requests: int) -> Finding:
    """Returns the finding on a log that holds requests of the log *other* as well."""
    message = f"{requests} requests stand in the log of {other} too, and count twice"
    fix = "give one of the two `counts: false`: two hops log the same requests"
    return Finding("counted_twice", WARNING, message, fix)


def _models(found: LogAudit) -> str:
    models = found.classless_models
    shown = [f"{model[:80]!r} {n}" for model, n in models.most_common(LISTED)]
    more = len(models) - len(shown)
    return ", ".join(shown) + (f" and {more} more models" if more > 0 else "")
