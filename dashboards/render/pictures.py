"""Takes the pictures of the README: the demonstration, watched by a real Prometheus.

    python dashboards/render/pictures.py [--minutes 15] [--all DIR]

It needs Prometheus, Chromium, Node, pngquant and the packages of `package.json`. The
scenarios play side by side in real time, as clusters of one Prometheus. With --all each
dashboard is drawn in each scenario, for a look before a release.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
BOARDS = HERE.parent / "json"
RULES = HERE.parents[1] / "alerts" / "goodput.rules.yml"
SCENARIOS = ("healthy", "kv-pressure", "overload", "tour")
# What the README shows.
SHOWN = {
    "slo-healthy": ("llm-goodput-slo", "healthy"),
    "slo-overload": ("llm-goodput-slo", "overload"),
    "constraint-tour": ("llm-goodput-constraint", "tour"),
    "capacity-tour": ("llm-goodput-capacity", "tour"),
    "engine-kv-pressure": ("llm-goodput-engine", "kv-pressure"),
    "gpu-tour": ("llm-goodput-gpu", "tour"),
    "gateway-tour": ("llm-goodput-gateway", "tour"),
    "fleet-tour": ("llm-goodput-fleet", "tour"),
    "health-tour": ("llm-goodput-health", "tour"),
}
SCRAPE_SECONDS = 5
FIRST_PORT = 17200
COLORS = "64"
NEEDED = ("prometheus", "node", "pngquant")


def main() -> None:
    """Plays the scenarios, waits, and takes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--all", type=Path)
    given = parser.parse_args()
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"not found: {', '.join(missing)}")
    # The programs that were started end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prometheus = _play(stack, folder)
        time.sleep(60 * given.minutes)
        if given.all:
            given.all.mkdir(parents=True, exist_ok=True)
            for path in sorted(BOARDS.glob("*.json")):
                for scenario in SCENARIOS:
                    picture = given.all / f"{path.stem}-{scenario}.png"
                    _picture(path.stem, scenario, picture, prometheus, given.minutes)
            return
        for name, (board, scenario) in SHOWN.items():
            picture = HERE.parent / "images" / f"{name}.png"
            _picture(board, scenario, picture, prometheus, given.minutes)


def _play(stack: contextlib.ExitStack, folder: Path) -> str:
    """Starts a demonstration for each scenario, and Prometheus; returns its URL."""
    program = Path(sys.executable).with_name("goodput-exporter")
    targets = []
    for port, scenario in enumerate(SCENARIOS, FIRST_PORT + 1):
        address = f"127.0.0.1:{port}"
        _start(
            stack,
            str(program),
            f"--demo={scenario}",
            f"--web.listen-address={address}",
            f"--storage.path={folder / scenario}",
        )
        labels = {"cluster": scenario, "namespace": "serving"}
        targets.append({"targets": [address], "labels": labels})
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": "30s",
        },
        "rule_files": [str(RULES.resolve())],
        "scrape_configs": [{"job_name": "goodput", "static_configs": targets}],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config), encoding="utf-8")
    url = f"127.0.0.1:{FIRST_PORT}"
    _start(
        stack,
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={url}",
        "--log.level=error",
    )
    _wait(f"http://{url}/-/ready")
    return f"http://{url}"


def _start(stack: contextlib.ExitStack, *command: str) -> None:
    process = subprocess.Popen(command)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def _wait(url: str) -> None:
    for _ in range(120):
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.5)
    raise SystemExit(f"{url} does not answer")


def _picture(
    board: str, scenario: str, picture: Path, prometheus: str, minutes: float
) -> None:
    """Draws a dashboard over the last *minutes*, in few colours."""
    now = round(time.time() * 1000)
    begin = now - round(60_000 * minutes)
    query = f"var-cluster={scenario}&from={begin}&to={now}&scrape={SCRAPE_SECONDS}"
    subprocess.run(
        [
            "node",
            str(HERE / "shot.mjs"),
            str(BOARDS / f"{board}.json"),
            prometheus,
            str(picture),
            query,
            "--allow-empty",
        ],
        check=True,
    )
    subprocess.run(
        ["pngquant", "--force", "--ext", ".png", COLORS, str(picture)], check=True
    )


if __name__ == "__main__":
    main()
