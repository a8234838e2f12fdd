"""The process that plays a serving site: engines, GPUs and a gateway's log.

    python -m exporter.demo_site --scenario=tour --directory=DIR ...

It prints one line of JSON with its port, waits for a line on standard input, and plays
until that ends, which it does when whoever started it is gone. Then it removes DIR.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from analyzer.capacity.machines import A100, machines
from analyzer.capacity.outcome import Outcome
from analyzer.simulation.clock import Clock
from analyzer.simulation.dcgm_page import Board, Node
from analyzer.simulation.envoy_log import log_line
from analyzer.simulation.scenarios import SCENARIOS
from analyzer.simulation.site import Replica, Site
from analyzer.simulation.truth import Limits, Truth
from analyzer.simulation.vllm_page import models, page
from exporter.demo_server import Answer, PageServer
from exporter.rotating_file import RotatingFile

MACHINE = "a100-llama-8b"
MODEL = "llama-3.1-8b"
NODE = "sim-node-1"
NAMESPACE = "serving"
BOARD = Board(A100, "NVIDIA A100-SXM4-80GB", 62.0, 400.0)
LIMITS = Limits(ttft=1.0, tpot=0.05, e2e=30.0)
TICK_SECONDS = 0.1
MOST_SECONDS = 0.3  # simulated at once, before others have their turn
LOG_BYTES = 16 << 20
LOG = "access.log"
TARGETS = "targets.json"


class Play:
    """A site in motion: `tick` brings it up to now; has `close()`.

    The replicas' servers come and go with them; their list is in the file_sd format.
    All of it runs on one event loop.
    """

    def __init__(
        self, scenario: str, directory: Path, *, speed: float, replicas: int, seed: int
    ) -> None:
        self._site = Site(
            SCENARIOS[scenario], machines()[MACHINE], replicas=replicas, seed=seed
        )
        self._node = Node(BOARD, hostname=NODE, namespace=NAMESPACE)
        self._truth = Truth(LIMITS)
        self._speed = speed
        self._clock = Clock(time.time(), speed)
        self._targets = directory / TARGETS
        self._log = RotatingFile(directory / LOG, most_bytes=LOG_BYTES)
        self._lines = 0
        self._changed = -1
        self._servers: dict[int, PageServer] = {}
        self._pods: dict[int, str] = {}
        self._ports: dict[int, int] = {}
        self.control = PageServer(
            {"/gpu/metrics": self._gpu_page, "/demo/truth": self._truth_page}
        )

    async def start(self) -> None:
        """Opens all servers."""
        await self.control.start()
        await self._follow()

    def begin(self) -> None:
        """Lets the clock run from now on."""
        self._clock = Clock(time.time(), self._speed)

    async def tick(self) -> None:
        """Simulates up to now, logs what ended, and follows the replicas."""
        self._advance()
        if self._site.changed != self._changed:
            await self._follow()

    def _advance(self) -> None:
        # A machine too slow for the speed falls behind, but still answers.
        most = self._site.now + MOST_SECONDS * self._speed
        now = min(most, self._clock.simulated(time.time()))
        lines = []
        for outcome in self._site.advance(max(self._site.now, now)):
            self._truth.add(outcome)
            line = log_line(
                outcome,
                model=MODEL,
                host=self._host(outcome),
                ended=self._clock.wall(outcome.ended),
            )
            lines.append(line + b"\n")
        self._log.write(lines)
        self._lines += len(lines)
        self._node.look(self._site.replicas, self._site.now)

    def _host(self, outcome: Outcome) -> str:
        if outcome.replica is None:
            return ""
        return f"127.0.0.1:{self._ports[outcome.replica]}"

    async def _follow(self) -> None:
        """Lets each replica that is up have a server, and lists all pods there are."""
        self._changed = self._site.changed
        for replica in self._site.replicas:
            server = self._servers.get(replica.number)
            moved = self._pods.get(replica.number) != replica.pod
            if server is not None and (replica.engine is None or moved):
                server.close()
                del self._servers[replica.number]
                server = None
            if server is None and replica.engine is not None:
                await self._open(replica, anew=moved)
            if replica.engine is None and replica.leaving:
                self._pods.pop(replica.number, None)
        listed = [
            {
                "targets": [f"127.0.0.1:{self._ports[number]}"],
                "labels": {"pod": pod, "node": NODE},
            }
            for number, pod in self._pods.items()
        ]
        fresh = self._targets.with_suffix(".new")
        fresh.write_text(json.dumps(listed), encoding="utf-8")
        fresh.replace(self._targets)

    async def _open(self, replica: Replica, *, anew: bool) -> None:
        """Opens a replica's server: on the port that it had, or *anew* on another."""
        server = PageServer(
            {
                "/metrics": partial(self._engine_page, replica),
                "/v1/models": self._models_page,
            }
        )
        await server.start(0 if anew else self._ports[replica.number])
        self._servers[replica.number] = server
        self._ports[replica.number] = server.port
        self._pods[replica.number] = replica.pod

    def _engine_page(self, replica: Replica) -> Answer:
        if replica.engine is None:
            return None
        text = page(replica, model=MODEL, clock=self._clock)
        return "text/plain; version=1.0.0; charset=utf-8", text.encode()

    def _models_page(self) -> Answer:
        config = machines()[MACHINE]
        body = models(MODEL, max_model_len=config.scheduler.max_model_len)
        return "application/json", json.dumps(body).encode()

    def _gpu_page(self) -> Answer:
        text = self._node.page(self._site.replicas)
        return "text/plain; charset=utf-8", text.encode()

    def _truth_page(self) -> Answer:
        body = {
            "seconds": self._site.now,
            "log_lines": self._lines,
            "classes": {"interactive": self._truth.document()},
        }
        return "application/json", json.dumps(body).encode()

    def close(self) -> None:
        """Stops all servers."""
        self.control.close()
        for server in self._servers.values():
            server.close()
        self._log.close()


@click.command()
@click.option("--scenario", type=click.Choice(tuple(SCENARIOS)), required=True)
@click.option("--directory", type=click.Path(path_type=Path), required=True)
@click.option("--speed", type=float, required=True)
@click.option("--replicas", type=int, required=True)
@click.option("--seed", type=int, required=True)
def main(
    scenario: str, directory: Path, speed: float, replicas: int, seed: int
) -> None:
    """Plays a scenario; see the module's text."""
    try:
        play = Play(scenario, directory, speed=speed, replicas=replicas, seed=seed)
        asyncio.run(_run(play))
    except OSError as error:  # a full disk, a folder that was removed
        sys.exit(f"the simulated site ended: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run(play: Play) -> None:
    """Plays from the first line of standard input to its end."""
    with closing(play):
        await play.start()
        sys.stdout.write(json.dumps({"port": play.control.port}) + "\n")
        sys.stdout.flush()
        stdin = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin
        )
        await stdin.readline()
        play.begin()
        over = asyncio.ensure_future(stdin.read())
        while not over.done():
            await play.tick()
            await asyncio.wait([over], timeout=TICK_SECONDS)


if __name__ == "__main__":
    main()
