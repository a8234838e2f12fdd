"""The shipped configurations in real Envoy, Traefik and Caddy (`make gateways`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_gateway import (
    FIRST_TOKEN,
    STREAMED,
    Pairs,
    Upstream,
    adapted,
    assert_common,
    assert_first_output,
    assert_tokens,
    checked,
    evaluable,
    exchanged,
    paired,
    running,
    wait_for_log,
)
from synthetic_engine import free_port

from analyzer.gateways.record import Outcome, TtftKind

ENDS = {
    "refused": Outcome.HTTP_ERROR,
    "abort": Outcome.CLIENT_ABORT,
    "error": Outcome.STREAM_ERROR,
    "cut": Outcome.UPSTREAM_CUT,
    "whole": Outcome.OK,
    **dict.fromkeys(STREAMED, Outcome.OK),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A server that streams."""
    server = Upstream()
    yield server
    server.close()


def without_lua(config: Path) -> Path:
    """Takes the Lua filter and its members out, as the comments there say."""
    lines = config.read_text().splitlines()
    begin = next(
        i
        for i, x in enumerate(lines)
        if x.strip().startswith("- name: envoy.filters.http.lua")
    )
    end = next(
        i for i, x in enumerate(lines) if "envoy.filters.http.sse_to_metadata" in x
    )
    kept = [x for x in lines[:begin] + lines[end:] if " tok_" not in x]
    config.write_text("\n".join(kept) + "\n")
    return config


@pytest.fixture(scope="module", params=["Lua", "no Lua"])
def envoy_run(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    upstream: Upstream,
    need_tool: Callable[[str], str],
) -> tuple[bool, Path, Pairs]:
    """Every scenario through Envoy, its log, and whether with the Lua filter."""
    program, lua = need_tool("envoy"), request.param == "Lua"
    directory, port = tmp_path_factory.mktemp("envoy"), free_port()
    config = adapted(
        "envoy/envoy.yaml",
        directory / "envoy.yaml",
        **{
            "address: 0.0.0.0, port_value: 8080": (
                f"address: 127.0.0.1, port_value: {port}"
            ),
            "address: 127.0.0.1, port_value: 8000": (
                f"address: 127.0.0.1, port_value: {upstream.port}"
            ),
            "/var/log/envoy/access.log": f"{directory}/access.log",
        },
    )
    if not lua:
        without_lua(config)
    flags = ["--concurrency", "1", "--disable-hot-restart"]
    flags += ["--file-flush-interval-msec", "100"]
    with running([program, "-c", config, *flags], port, directory / "output"):
        seen = exchanged(port)
        wait_for_log(directory / "access.log")
    return lua, directory / "access.log", paired(directory / "access.log", seen)


@pytest.fixture(scope="module")
def envoy(envoy_run: tuple[bool, Path, Pairs]) -> tuple[bool, Pairs]:
    """Every scenario through Envoy, and whether with the Lua filter."""
    lua, _, pairs = envoy_run
    return lua, pairs


def test_envoy_tells_who_asked_what_and_when(envoy: tuple[bool, Pairs]) -> None:
    """Ids, path, tenant, the served model, status, start and total."""
    assert_common(envoy[1], model="served")


def test_envoy_tells_how_it_ended(envoy: tuple[bool, Pairs]) -> None:
    """By its flags, the usage or the end mark, and the error object."""
    assert {name: record.outcome for name, (record, _) in envoy[1].items()} == ENDS


def test_envoy_times_tokens(envoy: tuple[bool, Pairs]) -> None:
    """The Lua filter sees tokens and gaps; without it a comment is the first byte."""
    lua, pairs = envoy
    kind = TtftKind.TOKEN if lua else TtftKind.FIRST_BODY_BYTE
    assert_first_output(pairs, kind)
    if lua:
        assert_tokens(pairs, gap=True)
        return
    fooled, _ = pairs.pop("comments")
    assert fooled.ttft == pytest.approx(FIRST_TOKEN / 5, abs=0.08)
    plain, seen = pairs["plain"]
    assert plain.completion_tokens == seen.tokens
    assert plain.tpot == pytest.approx((seen.e2e - FIRST_TOKEN) / 8, abs=0.025)


def test_the_check_of_envoys_log_names_the_filter_that_it_lacks(
    envoy_run: tuple[bool, Path, Pairs], tmp_path: Path
) -> None:
    """Without Lua the largest gap is missing; with it nothing is."""
    lua, log, _ = envoy_run
    row = checked(log, tmp_path)
    told = evaluable(row)
    assert row["format"] == "envoy"
    assert told["ttft"] >= len(STREAMED)
    assert told["tpot"] >= len(STREAMED)
    assert (told["max_gap"] > 0) is lua
    advised = {f["code"] for f in row["findings"] if "tok_max_gap_us" in f["snippet"]}
    assert advised == (set() if lua else {"criterion_absent", "first_body_byte"})


def total_only(pairs: Pairs) -> None:
    """Asserts that a gateway which sees no body claims to know nothing of it."""
    for record, _ in pairs.values():
        assert (record.ttft, record.tpot, record.max_gap) == (None, None, None)
        assert record.completion_tokens is None
        assert record.ttft_kind is TtftKind.NONE


# Who left and what was cut looks the same, so it is unknown; errors are not seen.
TOTAL_ENDS = {
    **ENDS,
    "error": Outcome.OK,
    "cut": Outcome.UNKNOWN,
    "abort": Outcome.UNKNOWN,
    "closes_after_done": Outcome.UNKNOWN,
}


@pytest.fixture(scope="module")
def traefik(
    tmp_path_factory: pytest.TempPathFactory,
    upstream: Upstream,
    need_tool: Callable[[str], str],
) -> Pairs:
    """Every scenario through Traefik."""
    program = need_tool("traefik")
    directory, port = tmp_path_factory.mktemp("traefik"), free_port()
    routes = adapted(
        "traefik/dynamic.yml",
        directory / "dynamic.yml",
        **{"http://127.0.0.1:8000": f"http://127.0.0.1:{upstream.port}"},
    )
    config = adapted(
        "traefik/traefik.yml",
        directory / "traefik.yml",
        **{
            '":8080"': f'"127.0.0.1:{port}"',
            "/etc/traefik/dynamic.yml": str(routes),
            "/var/log/traefik/access.log": f"{directory}/access.log",
        },
    )
    command = [program, f"--configFile={config}"]
    with running(command, port, directory / "output"):
        seen = exchanged(port)
        wait_for_log(directory / "access.log")
    return paired(directory / "access.log", seen)


def test_traefik_tells_the_total_and_how_it_ended(traefik: Pairs) -> None:
    """Nanoseconds of the whole; cut and left alike are unknown."""
    assert_common(traefik, model="asked")
    total_only(traefik)
    assert {n: record.outcome for n, (record, _) in traefik.items()} == TOTAL_ENDS


@pytest.fixture(scope="module")
def caddy(
    tmp_path_factory: pytest.TempPathFactory,
    upstream: Upstream,
    need_tool: Callable[[str], str],
) -> Pairs:
    """Every scenario through Caddy."""
    program = need_tool("caddy")
    directory, port = tmp_path_factory.mktemp("caddy"), free_port()
    config = adapted(
        "caddy/Caddyfile",
        directory / "Caddyfile",
        **{
            "http://:8080": f"http://127.0.0.1:{port}",
            "reverse_proxy 127.0.0.1:8000": f"reverse_proxy 127.0.0.1:{upstream.port}",
            "/var/log/caddy/access.log": f"{directory}/access.log",
        },
    )
    command = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
    with running(command, port, directory / "output"):
        seen = exchanged(port)
        wait_for_log(directory / "access.log")
    return paired(directory / "access.log", seen)


def test_caddy_tells_the_total_and_how_it_ended(caddy: Pairs) -> None:
    """Seconds of the whole, 0 of what was cut or left; headers by a placeholder."""
    whole = {n: pair for n, pair in caddy.items() if TOTAL_ENDS[n] != Outcome.UNKNOWN}
    assert_common(whole, model="asked")
    total_only(caddy)
    assert {n: record.outcome for n, (record, _) in caddy.items()} == TOTAL_ENDS
    plain, _ = caddy["plain"]
    assert plain.header_time is not None
    assert plain.header_time < FIRST_TOKEN / 2
    for name in ("cut", "abort"):
        assert caddy[name][0].e2e is None
