"""A real LiteLLM proxy with our callback and our middleware (`make litellm`)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from real_gateway import (
    CLOSE,
    CONFIGS,
    FIRST_TOKEN,
    ROUTE,
    SCENARIOS,
    STREAMED,
    TOKENS,
    Pairs,
    Seen,
    Upstream,
    ask,
    paired,
    running,
    wait_for_log,
)
from running_exporter import wait_for
from synthetic_engine import free_port

import exporter.goodput_middleware
from analyzer.gateways.record import Outcome, TtftKind

KEY = "sk-0123456789abcdef0123456789abcdef"
MODELS = ("warm-up", *SCENARIOS)
FAILURES = (Outcome.HTTP_ERROR, Outcome.STREAM_ERROR)
ENDS = {
    "refused": Outcome.HTTP_ERROR,
    "abort": Outcome.CLIENT_ABORT,
    "error": Outcome.STREAM_ERROR,
    "cut": Outcome.STREAM_ERROR,  # LiteLLM ends the stream with an error object
    "whole": Outcome.OK,
    **dict.fromkeys(STREAMED, Outcome.OK),
}


def configure(directory: Path, engine: int) -> None:
    """Writes the shipped files, with a model for each scenario."""
    for name in ("goodput_callback.py", "goodput_litellm.py"):
        shutil.copy(CONFIGS / "litellm" / name, directory)
    shutil.copy(exporter.goodput_middleware.__file__, directory)
    text = (CONFIGS / "litellm" / "config.yaml").read_text()
    begin, end = text.index("  - model_name"), text.index("litellm_settings")
    model = text[begin:end]
    models = [
        model.replace("model_name: my-model", f"model_name: {name}").replace(
            "http://127.0.0.1:8000/v1",
            f"http://127.0.0.1:{engine}/{name if name in SCENARIOS else 'plain'}/v1",
        )
        for name in MODELS
    ]
    (directory / "config.yaml").write_text(text[:begin] + "".join(models) + text[end:])


def say(port: int, name: str) -> Seen:
    """Asks a model by LiteLLM's key; the call's id is that of the request."""
    body = {
        "model": name,
        "messages": [{"role": "user", "content": "hello"}],
        "stream": name != "whole",
        "user": "acme",
    }
    request_id = f"id-{name}" if name in SCENARIOS else "none"
    headers = {
        "Authorization": f"Bearer {KEY}",
        "X-Request-Id": request_id,
        "x-litellm-call-id": request_id,
    }
    return ask(port, name, body=json.dumps(body).encode(), headers=headers)


@pytest.fixture(scope="module")
def litellm(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> tuple[Pairs, Pairs]:
    """Every scenario by the callback's log, and by that of the middleware."""
    program = need_tool("litellm")
    directory, port = tmp_path_factory.mktemp("litellm"), free_port()
    upstream = Upstream()
    configure(directory, upstream.port)
    callback, middleware = directory / "callback.jsonl", directory / "middleware.jsonl"
    environment = {
        **os.environ,
        "CONFIG_FILE_PATH": str(directory / "config.yaml"),
        "GOODPUT_FILE": str(middleware),
        "GOODPUT_LITELLM_LOG": str(callback),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": KEY,
        "PYTHONPATH": str(directory),
    }
    command: list[str | Path] = [Path(program).with_name("uvicorn")]
    command.append("goodput_litellm:app")
    flags = ["--host", "127.0.0.1", "--port", str(port)]

    def alive() -> bool:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        with closing(connection), suppress(HTTPException, OSError):
            connection.request("GET", "/health/liveliness")
            return connection.getresponse().status == 200
        return False

    with running(
        [*command, *flags],
        port,
        directory / "output",
        ready=alive,
        seconds=120.0,
        environment=environment,
    ):
        say(port, "warm-up")  # the first request of a process takes seconds
        with ThreadPoolExecutor(2) as pool:
            seen = {s.scenario: s for s in pool.map(lambda n: say(port, n), SCENARIOS)}
        wait_for_log(callback)
        wait_for_log(middleware)
        # The error of each attempt may be retried until the client has got one.
        failed = [name for name, end in ENDS.items() if end in FAILURES]
        wait_for(lambda: callback.read_bytes().count(b"failure_hook") == len(failed))
    upstream.close()
    return paired(callback, seen), paired(middleware, seen)


def test_the_callback_tells_who_asked_what_and_how_it_ended(
    litellm: tuple[Pairs, Pairs],
) -> None:
    """Call ids, route, end user, model, tokens; attempts and errors become one."""
    pairs, _ = litellm
    for name, (record, _) in pairs.items():
        assert record.route == ROUTE
        assert record.tenant == "acme"
        assert record.model == name
        assert record.start is not None
    assert {name: record.outcome for name, (record, _) in pairs.items()} == ENDS
    for name in (*STREAMED, "whole"):
        assert pairs[name][0].completion_tokens == TOKENS


def test_the_callback_lacks_what_the_proxy_does_first(
    litellm: tuple[Pairs, Pairs],
) -> None:
    """Its latencies begin later than the client's, and comments are no tokens."""
    pairs, _ = litellm
    for name in STREAMED:
        record, seen = pairs[name]
        assert record.ttft is not None
        assert seen.ttft is not None
        assert FIRST_TOKEN - 0.05 <= record.ttft <= seen.ttft + 0.05
        assert record.tpot_at_most


def test_the_middleware_around_it_has_the_clients_latencies(
    litellm: tuple[Pairs, Pairs],
) -> None:
    """From the arrival, before LiteLLM's own work, to each token."""
    _, pairs = litellm
    assert {name: record.outcome for name, (record, _) in pairs.items()} == ENDS
    for name in STREAMED:
        record, seen = pairs[name]
        assert record.ttft_kind is TtftKind.TOKEN
        assert record.ttft == pytest.approx(seen.ttft, abs=CLOSE)
        assert record.max_gap is not None
        if name != "closes_after_done":
            assert record.e2e == pytest.approx(seen.e2e, abs=CLOSE)
