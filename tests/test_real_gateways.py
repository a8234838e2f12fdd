"""The shipped configurations in real nginx and HAProxy: the log tells the truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_gateway import (
    CONFIGS,
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

MODULES = Path("/usr/lib/nginx/modules")
NEEDED = {
    "stock": (),
    "njs": ("ngx_http_js_module.so",),
    "lua": ("ndk_http_module.so", "ngx_http_lua_module.so"),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A server that streams."""
    server = Upstream()
    yield server
    server.close()


def need_modules(kind: str) -> None:
    """Skips where nginx's modules are missing, or fails when CI=true."""
    missing = [name for name in NEEDED[kind] if not (MODULES / name).exists()]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{missing} are missing in {MODULES}")
    if missing:
        pytest.skip(f"{missing} are missing in {MODULES}")


def nginx_configuration(kind: str, directory: Path, port: int, engine: int) -> Path:
    """Writes the shipped files with this test's paths; returns the main one."""
    snippet = adapted(
        f"nginx/{kind}.conf",
        directory / f"{kind}.conf",
        **({"/etc/nginx/goodput/": f"{CONFIGS}/nginx/"} if kind == "njs" else {}),
    )
    body_filter = {
        "stock": "",
        "njs": "js_body_filter goodput.answer;",
        "lua": f"body_filter_by_lua_file {CONFIGS}/nginx/goodput.lua;",
    }[kind]
    modules = "\n".join(f"load_module {MODULES / name};" for name in NEEDED[kind])
    places = "".join(
        f"{place}_temp_path {directory}/{place};\n"
        for place in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return adapted(
        "nginx/nginx.conf",
        directory / "nginx.conf",
        **{
            "load_module /usr/lib/nginx/modules/ngx_http_js_module.so;": (
                f"daemon off;\npid {directory}/pid;\nworker_processes 1;\n"
                f"error_log {directory}/error.log;\n{modules}"
            ),
            "include /etc/nginx/goodput/njs.conf;": f"include {snippet};\n{places}",
            "js_body_filter goodput.answer;": body_filter,
            "server 127.0.0.1:8000": f"server 127.0.0.1:{engine}",
            "listen 8080": f"listen 127.0.0.1:{port}",
            "/var/log/nginx/goodput.log": f"{directory}/access.log",
        },
    )


@pytest.fixture(scope="module", params=["stock", "njs", "lua"])
def nginx_run(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    upstream: Upstream,
    need_tool: Callable[[str], str],
) -> tuple[str, Path, Pairs]:
    """Every scenario through nginx: its log, and as that and the client tell it."""
    kind = str(request.param)
    program = need_tool("nginx")
    need_modules(kind)
    directory, port = tmp_path_factory.mktemp(kind), free_port()
    config = nginx_configuration(kind, directory, port, upstream.port)
    output = directory / "output"
    with running([program, "-p", directory, "-c", config], port, output):
        seen = exchanged(port)
        wait_for_log(directory / "access.log")
    return kind, directory / "access.log", paired(directory / "access.log", seen)


@pytest.fixture(scope="module")
def nginx(nginx_run: tuple[str, Path, Pairs]) -> tuple[str, Pairs]:
    """Every scenario through nginx, as its log and as the client tells it."""
    kind, _, pairs = nginx_run
    return kind, pairs


ENDS = {
    "refused": Outcome.HTTP_ERROR,
    "abort": Outcome.CLIENT_ABORT,
    "error": Outcome.STREAM_ERROR,
    "cut": Outcome.UPSTREAM_CUT,
    "whole": Outcome.OK,
    **dict.fromkeys(STREAMED, Outcome.OK),
}
# nginx without a filter takes every end for a good one, so none is known.
STOCK_ENDS = {
    **dict.fromkeys(ENDS, Outcome.UNKNOWN),
    "refused": Outcome.HTTP_ERROR,
    "abort": Outcome.CLIENT_ABORT,
    "closes_after_done": Outcome.CLIENT_ABORT,
}


def test_nginx_tells_who_asked_what_and_when(nginx: tuple[str, Pairs]) -> None:
    """Ids, path, tenant, model, status, start and total, with and without filters."""
    kind, pairs = nginx
    assert_common(pairs, model="asked" if kind == "stock" else "served")


def test_nginx_tells_how_it_ended(nginx: tuple[str, Pairs]) -> None:
    """A filter sees the end mark, its absence, and an error before it."""
    kind, pairs = nginx
    ends = STOCK_ENDS if kind == "stock" else ENDS
    assert {name: record.outcome for name, (record, _) in pairs.items()} == ends


def test_nginx_times_tokens_by_its_filters_alone(nginx: tuple[str, Pairs]) -> None:
    """Comments and torn events do not matter; without a filter nothing is known."""
    kind, pairs = nginx
    if kind == "stock":
        for record, _ in pairs.values():
            assert (record.ttft, record.ttft_kind) == (None, TtftKind.NONE)
            assert record.tpot is None
        return
    assert_first_output(pairs, TtftKind.TOKEN)
    assert_tokens(pairs, gap=True)


@pytest.fixture(scope="module")
def haproxy_run(
    tmp_path_factory: pytest.TempPathFactory,
    upstream: Upstream,
    need_tool: Callable[[str], str],
) -> tuple[Path, Pairs]:
    """Every scenario through HAProxy: its log, and as that and the client tell it."""
    program = need_tool("haproxy")
    directory, port = tmp_path_factory.mktemp("haproxy"), free_port()
    config = adapted(
        "haproxy/haproxy.cfg",
        directory / "haproxy.cfg",
        **{
            "bind :8080": f"bind 127.0.0.1:{port}",
            "server a 127.0.0.1:8000": f"server a 127.0.0.1:{upstream.port}",
        },
    )
    output = directory / "access.log"
    with running([program, "-f", config, "-db"], port, output):
        seen = exchanged(port)
        wait_for_log(output)
    return output, paired(output, seen)


@pytest.fixture(scope="module")
def haproxy(haproxy_run: tuple[Path, Pairs]) -> Pairs:
    """Every scenario through HAProxy, as its log and as the client tells it."""
    return haproxy_run[1]


def test_haproxy_tells_who_asked_what_and_when(haproxy: Pairs) -> None:
    """Ids, path, tenant, model, status, start and total."""
    assert_common(haproxy, model="asked")


def test_haproxy_tells_how_it_ended(haproxy: Pairs) -> None:
    """By its termination state, which does not know of errors inside a stream.

    A client that closes after [DONE] but before the stream's end looks like one that
    left: HAProxy has not read the answer.
    """
    told = {name: record.outcome for name, (record, _) in haproxy.items()}
    assert told.pop("closes_after_done") in (Outcome.OK, Outcome.CLIENT_ABORT)
    expected = {**ENDS, "error": Outcome.OK}
    del expected["closes_after_done"]
    assert told == expected


def test_haproxy_stamps_the_first_body_byte(haproxy: Pairs) -> None:
    """A comment is one too; tokens are never known."""
    assert_first_output(haproxy, TtftKind.FIRST_BODY_BYTE)
    fooled, _ = haproxy["comments"]
    assert fooled.ttft == pytest.approx(FIRST_TOKEN / 5, abs=0.08)
    for record, _ in haproxy.values():
        assert record.tpot is None
        assert record.completion_tokens is None


def test_the_check_of_nginxs_log_names_the_filter_that_it_lacks(
    nginx_run: tuple[str, Path, Pairs], tmp_path: Path
) -> None:
    """What it says to add is what makes the criteria evaluable."""
    kind, log, _ = nginx_run
    row = checked(log, tmp_path)
    assert (row["format"], row["framing"], row["unparsed"]) == ("nginx", "plain", [])
    advised = {
        finding["code"]
        for finding in row["findings"]
        if "js_body_filter goodput.answer;" in finding["snippet"]
    }
    told = evaluable(row)
    if kind == "stock":
        assert (told["ttft"], told["tpot"]) == (0, 0)
        assert advised == {"criterion_absent", "ending"}
    else:
        assert told["ttft"] >= len(STREAMED)
        assert told["tpot"] >= len(STREAMED)
        assert advised == set()
        assert row["requests"]["first_output"] == {"token": told["ttft"]}
    assert told["e2e"] > 0


def test_the_check_of_haproxys_log_says_what_it_never_tells(
    haproxy_run: tuple[Path, Pairs], tmp_path: Path
) -> None:
    """Its stamp gives TTFT; for tokens another log is needed."""
    log, _ = haproxy_run
    row = checked(log, tmp_path)
    told = evaluable(row)
    assert row["format"] == "haproxy"
    assert told["ttft"] >= len(STREAMED) - 1
    assert told["tpot"] == 0
    codes = {finding["code"]: finding for finding in row["findings"]}
    assert "criterion_absent" not in codes
    assert "unix:///run/goodput/requests.sock" in codes["criterion_never"]["snippet"]
    assert codes["first_body_byte"]["severity"] == "info"
