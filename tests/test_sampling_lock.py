"""What a sample does while somebody else holds the lock over flows and totals."""

from __future__ import annotations

import threading

from raw_server import RawServer, answer, serving

from analyzer.config import parse_config
from analyzer.flow import EngineFlow
from exporter.target import Target

PAGE = b'vllm:generation_tokens_total{engine="0",model_name="m"} 7\n'
PATIENCE_SECONDS = 20.0


def test_a_page_is_read_outside_the_lock_and_recorded_under_it() -> None:
    """Reading a large page keeps nobody waiting, and nothing of it shows early."""
    lock = threading.RLock()
    read = threading.Event()

    def admit(model: str) -> str:
        read.set()
        return model

    with RawServer(serving(answer(PAGE))) as server:
        config = parse_config(f"engines: [{{name: e, url: '{server.url}'}}]")
        flow = EngineFlow(config.engines[0], config, since=0.0, admit=admit)
        target = Target(flow, lock, lambda _flow, _at: None)
        sample = threading.Thread(target=target.sample, kwargs={"tick": True})
        with lock:
            sample.start()
            assert read.wait(PATIENCE_SECONDS)
            assert flow.reading is None
            assert flow.attempt is None
        sample.join(PATIENCE_SECONDS)
        target.close()
    assert flow.ranks() == (("m", "0"),)
