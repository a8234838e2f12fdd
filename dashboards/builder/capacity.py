"""How much the fleet takes, how much is left, and what a good token costs."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d

from builder import constraint, verdict
from builder.board import Board, Line, slo_classes, typed
from builder.panels import BAD, GOOD, PLAIN, WARN, About, Query, series, tile
from builder.query import CLASS, MODEL, SITE, mean, older_days, quantile, ratio
from builder.scatter import Points, scatter

REQUESTS = f"sum(slo_class:goodput_requests:rate5m{{{CLASS}}})"
GOODS = f"sum(slo_class:goodput_good_requests:rate5m{{{CLASS}}})"
TOKENS = f"sum(model:goodput_generation_tokens:rate5m{{{MODEL}}})"
GOOD_TOKENS = f"sum(slo_class:goodput_good_tokens:rate5m{{{CLASS}}})"
RUNNING = f"model:goodput_running_requests:sum{{{MODEL}}}"
WAITING = f"model:goodput_waiting_requests:sum{{{MODEL}}}"
# Over five minutes, as the rates that it is held against.
HELD = f"sum(avg_over_time({RUNNING}[5m]) + avg_over_time({WAITING}[5m]))"
ENGINES = f"count(target:goodput_kv_cache_usage_max60s:max{{{MODEL}}})"
NO_LOG = "No traffic, no request log read, or the rules are not loaded"
CONCURRENCY = Query(f"{HELD} / {ENGINES}", "requests in an engine")
PRICE = typed("price", "Price of an engine-hour", "1")


def _load() -> d.Panel:
    return scatter(
        About(
            "Requests/s against concurrency",
            "A point a moment: requests and good requests a second of one engine, "
            "against the requests it holds (running and waiting). White is now. For "
            "one model at a time.",
            "Both rise together, white on the slope.",
            "Requests flat while good ones fall: the white point is past the knee; add "
            "replicas or cap concurrency where good requests peak.",
            NO_LOG,
        ),
        across=CONCURRENCY,
        points=(
            Points("requests", f"{REQUESTS} / {ENGINES}", PLAIN),
            Points("good requests", f"{GOODS} / {ENGINES}", GOOD),
        ),
        unit="reqps",
    )


def _tokens() -> d.Panel:
    return scatter(
        About(
            "Tokens/s against concurrency",
            "A point a moment: output tokens a second of one engine.",
            "Rising: more concurrency still buys tokens.",
            "Flat: the engine is saturated; more concurrency only adds latency.",
            "No engine seen, or the rules are not loaded",
        ),
        across=CONCURRENCY,
        points=(Points("output tokens", f"{TOKENS} / {ENGINES}", PLAIN),),
        unit="si:tok/s",
    )


def _latency() -> d.Panel:
    buckets = f"slo_class:goodput_request_ttft_seconds_bucket:rate5m{{{CLASS}}}"
    return scatter(
        About(
            "TTFT against concurrency",
            "A point a moment: the p95 of time to first token.",
            "Flat, then a knee to the right of the white point.",
            "Steep at the white point: no headroom is left.",
            NO_LOG,
        ),
        across=CONCURRENCY,
        points=(
            Points(
                "p95 TTFT", f"histogram_quantile(0.95, sum by (le) ({buckets}))", WARN
            ),
        ),
        unit="s",
    )


def _load_share() -> d.Panel:
    objective = f'slo_class:goodput_objective:max{{{SITE},slo_class=~"$slo_class"}}'
    # What was good while many were late says nothing of what an engine takes.
    met = f"{ratio(GOODS, REQUESTS)} >= on () max({objective})"
    best = f"max_over_time(({GOODS} / {ENGINES} and on () {met})[1d:5m])"
    return tile(
        About(
            "Load against best served",
            "Requests/s of an engine now, over the most good requests/s that one "
            "served in the last day while the objective was met. What an engine takes "
            "is at least that, maybe more: the scatter below shows whether it bends.",
            "Below 1.",
            "Well above: more comes than was ever served in time; replicas, or what "
            "binds.",
            "Objective not met all day",
        ),
        Query(f"{REQUESTS} / {ENGINES} / ({best} > 0)", "load"),
        unit="suffix: ×",
        colors=((None, PLAIN), (1.2, WARN), (2, BAD)),
    )


def _engines() -> d.Panel:
    return tile(
        About(
            "Engines",
            "Engines of the chosen namespaces, and those of them that do not answer.",
            "None is down.",
            "See Fleet for which.",
            "No engine seen",
        ),
        Query(f'sum(goodput_engine_state{{{SITE},state!="down"}})', "up"),
        Query(f'sum(goodput_engine_state{{{SITE},state="down"}})', "down"),
        unit="short",
        others=(("down", "short", ((None, GOOD), (1, BAD))),),
    )


def _user_speed() -> d.Panel:
    itl = mean("goodput_engine_itl_seconds", MODEL, "model")
    slow = quantile(0.95, "goodput_engine_itl_seconds", MODEL, "model")
    return series(
        About(
            "Tokens/s that a user sees",
            "Outputs a second of one answer while it streams: mean, and what 95 % of "
            "gaps keep.",
            "Above reading speed, some 5 to 10 tokens/s, with room to the TPOT target.",
            "Falling as server-wide tokens/s rise: batches are wide; choose between "
            "speed a user and users a server.",
        ),
        Query(f"1 / ({itl})", "mean {{model}}"),
        Query(f"1 / ({slow} > 0)", "95 % faster than {{model}}"),
        unit="si:tok/s",
    )


def _server_speed() -> d.Panel:
    return series(
        About(
            "Tokens/s of the fleet",
            "Output tokens a second of all engines, and those of good requests.",
            "The lines lie near each other.",
            "A gap is computing power spent on answers that came too late.",
            NO_LOG,
        ),
        Query(TOKENS, "output tokens"),
        Query(GOOD_TOKENS, "tokens of good requests"),
        unit="si:tok/s",
        filled=True,
        colors=(("^output", PLAIN), ("of good", GOOD)),
    )


def _cost() -> d.Panel:
    spent = f"($price * {ENGINES} / 3600)"
    return series(
        About(
            "Cost of a million output tokens",
            "The price of an engine-hour (a variable above, in your currency) times "
            "the engines, over the tokens made; and over those of good requests alone. "
            "Idle time is included.",
            "The two lines are near each other and low.",
            "Both high: too many engines for the traffic. Good ones dearer: the money "
            "goes into late answers. No line: none was good.",
            NO_LOG,
        ),
        Query(f"{spent} / ({TOKENS} > 0) * 1e6", "all tokens"),
        Query(f"{spent} / ({GOOD_TOKENS} > 0) * 1e6", "good tokens"),
        unit="short",
        colors=(("^all", PLAIN), ("^good", GOOD)),
    )


def _idle() -> d.Panel:
    busy = f"(sum({RUNNING}) < bool 0.5)"
    return tile(
        About(
            "Idle, last day",
            "Share of the last day in which no engine ran a request.",
            "What the traffic's nature makes of it.",
            "Much idle time: scale down at night, or give batch work to these hours.",
            "No engine seen, or the rules are not loaded",
        ),
        Query(f"avg_over_time({busy}[1d:1m])", "of the time"),
        unit="percentunit",
    )


def _bursts() -> d.Panel:
    arrivals = f"sum(rate(goodput_requests_total{{{CLASS}}}[1m]))"
    peak = f"max_over_time({arrivals}[1h:1m])"
    return tile(
        About(
            "Peak over mean",
            "The busiest minute of the last hour over its mean minute, of requests.",
            "Below 2: the mean tells what capacity is needed.",
            "3 and more: size for bursts, or smooth them at the gateway.",
            NO_LOG,
        ),
        Query(f"{peak} / (avg_over_time({arrivals}[1h:1m]) > 0)", "minutes"),
        unit="suffix: ×",
        colors=((None, GOOD), (2, WARN), (4, BAD)),
    )


def _day() -> d.Panel:
    daily = f"sum by (day) (slo_class:goodput_requests:rate5m{{{CLASS}}}OFFSET)"
    days = older_days(daily, 7)
    return series(
        About(
            "A typical day",
            "Requests a second at each time of day: mean and highest of the last seven "
            "days, as far as they were recorded.",
            "The highest line lies below what the fleet takes (requests/s where the "
            "scatter above bends, times engines).",
            "Plan replicas for the peak, not for the mean.",
            NO_LOG,
        ),
        Query(f"avg({days})", "mean of days"),
        Query(f"max({days})", "highest of days"),
        unit="reqps",
        span_from="24h",
        colors=(("^mean", PLAIN), ("^highest", WARN)),
    )


def _by_model() -> d.Panel:
    finished = f"sum by (model) (model:goodput_finished_requests:rate5m{{{MODEL}}})"
    prompt = f"sum by (model) (model:goodput_prompt_tokens:rate5m{{{MODEL}}})"
    output = f"sum by (model) (model:goodput_generation_tokens:rate5m{{{MODEL}}})"
    return series(
        About(
            "Tokens of a request",
            "Mean prompt and output tokens of a request: the workload that all "
            "capacity figures hold for.",
            "Steady.",
            "A change here changes the capacity: look again at the scatter plots.",
        ),
        Query(ratio(prompt, finished), "prompt {{model}}"),
        Query(ratio(output, finished), "output {{model}}"),
        unit="short",
    )


BOARD = Board(
    uid="llm-goodput-capacity",
    title="LLM Goodput: capacity",
    description="How much the engines take within the SLO, how much is left, the "
    "traffic's shape, and what a good token costs.",
    variables=(slo_classes(), PRICE, verdict.RUNBOOKS),
    since="now-6h",
    lines=(
        Line(
            4,
            (
                (6, verdict.binding()),
                (3, constraint.forecast(MODEL)),
                (4, constraint.fullest()),
                (4, constraint.waiting_share()),
                (4, _load_share()),
                (3, _engines()),
            ),
        ),
        Line(4, ((24, verdict.advice()),)),
        Line(10, ((8, _load()), (8, _tokens()), (8, _latency()))),
        Line(
            8,
            ((8, _user_speed()), (8, _server_speed()), (8, _cost())),
            title="Speed and cost",
        ),
        Line(
            8,
            ((12, _day()), (6, _by_model()), (3, _idle()), (3, _bursts())),
            title="The shape of the traffic",
        ),
    ),
)
