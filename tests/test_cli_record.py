"""`goodput record`: what is on disk, what is refused, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, repeat
from pathlib import Path

import pytest
from goodput_command import goodput
from raw_server import Peer, RawServer, answer, head, saying, serving, stalling
from running_exporter import RunningExporter, configuration, wait_for
from synthetic_engine import MODEL, SyntheticEngine, free_port

PROGRAM = Path(sys.executable).with_name("goodput")
COLUMNS = "n,time,status,seconds,bytes"
LINE = 'vllm:generation_tokens_total{engine="0",model_name="m"} '


def index(recording: Path) -> list[list[str]]:
    """Returns the lines of a recording's index, which has the documented columns."""
    text = (recording / "scrapes" / "index.csv").read_text(encoding="utf-8")
    first, *lines = text.splitlines()
    assert first == COLUMNS
    return [line.split(",") for line in lines]


def test_pages_are_on_disk_byte_by_byte(tmp_path: Path) -> None:
    """Damage included, since a recording is the evidence of what was served."""
    served = [
        f"{LINE}1\n".encode(),
        b"vllm:x 1\r\n\xff\xfe no UTF-8\x00\n",
        b"",
        "# é\n".encode() * 9999,
    ]

    more = f"{LINE}2\n".encode()

    def script(peer: Peer) -> None:
        for body in chain(served, repeat(more)):
            if not peer.request():
                return
            peer.send(answer(body))

    recording = tmp_path / "r"
    with RawServer(script) as server:
        path = configuration(tmp_path / "c.yml", server.url, interval="200ms")
        done = goodput("record", "--config.file", path, "--for", "2s", recording)
    assert done.exit_code == 0
    lines = index(recording)
    assert f"{recording}: {len(lines)} scrapes, 0 failed" in done.stderr
    pages = sorted((recording / "scrapes").glob("*.prom"))
    assert [page.name for page in pages] == [
        f"{int(line[0]):04d}.prom" for line in lines
    ]
    bodies = [page.read_bytes() for page in pages]
    assert bodies == [*served, *[more] * (len(lines) - 4)]
    assert {line[2] for line in lines} == {"200"}
    assert [int(line[4]) for line in lines] == [len(body) for body in bodies]
    times = [float(line[1]) for line in lines]
    assert times == sorted(times)
    assert all(float(line[3]) > 0 for line in lines)


def test_a_failed_scrape_stands_in_the_index_with_its_reason(tmp_path: Path) -> None:
    """It has no page, and a replay sees the gap."""
    scripts = [
        saying(answer(f"{LINE}1\n".encode())),
        saying(answer(b"", status="503 Busy")),
        saying(head("Content-Length: 99"), b"half"),
        stalling(),
        serving(answer(f"{LINE}9\n".encode())),
    ]

    def script(peer: Peer) -> None:
        scripts[min(peer.number, 4)](peer)

    recording = tmp_path / "r"
    with RawServer(script) as server:
        path = configuration(tmp_path / "c.yml", server.url, interval="300ms")
        path.write_text(path.read_text().replace("timeout: 2s", "timeout: 200ms"))
        done = goodput("record", "--config.file", path, "--for", "1500ms", recording)
    assert done.exit_code == 0
    assert "3 failed" in done.stderr
    lines = index(recording)
    statuses = [line[2] for line in lines]
    assert statuses[:5] == ["200", "http_status", "connection", "timeout", "200"]
    assert [line[4] for line in lines[1:4]] == ["0"] * 3
    assert not (recording / "scrapes" / "0002.prom").exists()
    document = json.loads(goodput("replay", recording, "--format", "json").stdout)
    assert document["sources"][0]["gaps"] == 1


def test_variables_of_the_environment_are_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording stands alone: its replay needs no environment."""
    recording = tmp_path / "r"
    path = configuration(tmp_path / "c.yml", "$(ENGINE)/metrics", interval="200ms")
    unset = goodput("record", "--config.file", path, recording)
    assert unset.exit_code == 2
    assert "environment variable ENGINE is not set" in unset.stderr
    assert not recording.exists()
    with SyntheticEngine() as engine:
        monkeypatch.setenv("ENGINE", engine.url.removesuffix("/metrics"))
        done = goodput("record", "--config.file", path, "--for", "400ms", recording)
    assert done.exit_code == 0
    monkeypatch.delenv("ENGINE")
    assert engine.url in (recording / "config.yml").read_text(encoding="utf-8")
    assert "$(" not in (recording / "config.yml").read_text(encoding="utf-8")
    assert goodput("replay", recording).exit_code == 0


def test_the_recorded_engine_is_the_one_that_is_replayed(tmp_path: Path) -> None:
    """Also when it is not the first of the configuration."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", f"http://127.0.0.1:{free_port()}/m")
        with path.open("a", encoding="utf-8") as file:
            file.write(f'  - {{name: second, url: "{engine.url}", interval: 200ms}}\n')
        command = ("record", "--config.file", path, "--for", "400ms", "--target")
        done = goodput(*command, "second", tmp_path / "r")
        unknown = goodput(*command, "third", tmp_path / "other")
    assert done.exit_code == 0
    document = json.loads(goodput("replay", tmp_path / "r", "--format", "json").stdout)
    assert [source["name"] for source in document["sources"]] == ["second"]
    assert unknown.exit_code == 2
    assert "No engine 'third'; there are: vllm, second." in unknown.stderr


def test_a_log_that_is_not_recorded_is_named_with_the_reason(tmp_path: Path) -> None:
    """A recording holds one log that is a file; no other is left out in silence."""
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        for name in ("first.log", "second.log"):
            (tmp_path / name).touch()
        with path.open("a", encoding="utf-8") as file:
            file.write(
                "gateways:\n"
                f"  - {{name: live, socket: 'unix://{tmp_path}/s', format: envoy}}\n"
                f"  - {{name: first, path: {tmp_path}/first.log, format: envoy}}\n"
                f"  - {{name: second, path: {tmp_path}/second.log, format: envoy}}\n"
            )
        done = goodput(
            "record", "--config.file", path, "--for", "400ms", tmp_path / "r"
        )
    assert done.exit_code == 0
    text = done.stderr
    assert "gateway live is not recorded: its requests do not come from a file" in text
    assert "gateway second is not recorded: a recording holds one request log" in text
    assert "gateway first" not in text


@pytest.mark.parametrize("name", ["scrapes/index.csv", "scrapes.tar.xz"])
def test_a_recording_is_never_written_over(tmp_path: Path, name: str) -> None:
    """Neither a folder nor an archive: the command ends and leaves both alone."""
    recording = tmp_path / "r"
    (recording / name).parent.mkdir(parents=True)
    (recording / name).write_bytes(b"precious")
    path = configuration(tmp_path / "c.yml", f"http://127.0.0.1:{free_port()}/m")
    refused = goodput("record", "--config.file", path, recording)
    assert refused.exit_code == 3
    expected = f"Error: {recording / name}: there is a recording already\n"
    assert refused.stderr == expected
    assert (recording / name).read_bytes() == b"precious"
    assert not (recording / "config.yml").exists()


WRONG_CALLS = {
    "no unit": (("--for", "5"), "are durations such as 30s or 5m"),
    "nothing": (("--for", "0s"), "are durations such as 30s or 5m"),
    "a word": (("--interval", "often"), "are durations such as 30s or 5m"),
    "no engine": (("--target", "x"), "No engine 'x'; there are: vllm."),
}


@pytest.mark.parametrize(("options", "message"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_writes_nothing(
    tmp_path: Path, options: tuple[str, str], message: str
) -> None:
    """Exit code 2 and a sentence, before anything is made."""
    path = configuration(tmp_path / "c.yml", "http://127.0.0.1:1/metrics")
    found = goodput("record", "--config.file", path, *options, tmp_path / "r")
    assert (found.exit_code, message in found.stderr) == (2, True)
    assert not (tmp_path / "r").exists()


@contextmanager
def recording_process(path: Path, recording: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts `goodput record` as a program of its own."""
    options = ("--config.file", str(path), "--interval", "200ms")
    command = [str(PROGRAM), "record", *options, str(recording)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_an_end_waits_for_the_scrape_in_work_and_a_second_one_does_not(
    tmp_path: Path,
) -> None:
    """SIGTERM lets a slow page come; Ctrl-C after it ends the wait."""

    def script(peer: Peer) -> None:
        saying(answer(f"{LINE}1\n".encode()))(peer)
        stalling()(peer)

    recording = tmp_path / "r"
    with RawServer(script) as server:
        path = configuration(tmp_path / "c.yml", server.url)
        path.write_text(path.read_text().replace("timeout: 2s", "timeout: 1h"))
        with recording_process(path, recording) as process:
            wait_for(lambda: len(server.requests) == 2)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
    assert [line[2] for line in index(recording)] == ["200"]
    assert (recording / "scrapes" / "0000.prom").read_text() == f"{LINE}1\n"


def test_two_signals_at_once_end_the_wait(tmp_path: Path) -> None:
    """As when the first comes just before a wait, or to a thread that does not."""

    def script(peer: Peer) -> None:
        saying(answer(f"{LINE}1\n".encode()))(peer)
        stalling()(peer)

    with RawServer(script) as server:
        path = configuration(tmp_path / "c.yml", server.url)
        path.write_text(path.read_text().replace("timeout: 2s", "timeout: 1h"))
        with recording_process(path, tmp_path / "r") as process:
            wait_for(lambda: len(server.requests) == 2)
            numbers = (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT)
            for number in numbers:
                process.send_signal(number)
            assert process.wait(20) == 0


def test_a_second_signal_does_not_wait_for_gpus_either(tmp_path: Path) -> None:
    """Their exporter hangs, and may do so for an hour."""
    with RawServer(stalling()) as gpus, SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        with path.open("a", encoding="utf-8") as file:
            file.write(f'gpus: [{{name: node, url: "{gpus.url}", timeout: 1h}}]\n')
        with recording_process(path, tmp_path / "r") as process:
            wait_for(lambda: len(gpus.requests) == 1)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0


def test_a_third_signal_does_not_break_what_closes(tmp_path: Path) -> None:
    """The second one gives up a GPU exporter that takes no connection, in a second."""
    log = tmp_path / "live.log"
    log.touch()
    copy = tmp_path / "r" / "access.log"
    with full_listener() as gpus, SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        with path.open("a", encoding="utf-8") as file:
            file.write(f'gpus: [{{name: node, url: "{gpus}", timeout: 1h}}]\n')
            file.write(f"gateways: [{{name: g, path: {log}, format: envoy}}]\n")
        with recording_process(path, tmp_path / "r") as process:
            wait_for((tmp_path / "r" / "scrapes" / "0001.prom").exists)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGTERM)
            log.write_text("late\n", encoding="utf-8")
            wait_for(lambda: copy.read_text(encoding="utf-8") == "late\n")
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
            assert process.returncode == 0
    assert "scrapes, 0 failed" in said


@contextmanager
def full_listener() -> Iterator[str]:
    """Yields the URL of a server that takes no more connections, nor refuses them."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"


def test_sigterm_between_scrapes_leaves_a_recording_that_replays(
    tmp_path: Path,
) -> None:
    """As when a pod is deleted or `timeout` runs out."""
    recording = tmp_path / "r"
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        with recording_process(path, recording) as process:
            wait_for((recording / "scrapes" / "0001.prom").exists)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
            assert process.returncode == 0
    assert f"{recording}: {len(index(recording))} scrapes, 0 failed" in said
    assert len(list((recording / "scrapes").glob("*.prom"))) == len(index(recording))
    assert goodput("replay", recording).exit_code == 0


CRITERIA = ("ttft", "tpot", "e2e")


def test_a_replay_counts_what_the_exporter_counted_live(tmp_path: Path) -> None:
    """Events, certain and possible ones of every criterion, tokens and requests."""
    recording = tmp_path / "r"
    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        events = "goodput_engine_criterion_events_total"
        with (
            RunningExporter(f"--config.file={path}") as exporter,
            recording_process(path, recording) as process,
        ):
            wait_for(lambda: exporter.value(events, criterion="e2e") == 0)
            wait_for((recording / "scrapes" / "0000.prom").exists)
            wait_for(lambda: len(index(recording)) > 0)
            for number in range(20):
                engine.finish(
                    ttft=0.02 * number, tpot=0.0025 * number, e2e=0.3 * number
                )
            wait_for(lambda: exporter.value(events, criterion="e2e") == 20)
            taken = len(index(recording))
            wait_for(lambda: len(index(recording)) > taken + 1)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            labels = {"model": MODEL, "slo_class": "interactive"}

            def live(kind: str, criterion: str) -> float | None:
                name = f"goodput_engine_criterion_{kind}_total"
                return exporter.value(name, criterion=criterion, **labels)

            expected = {
                c: [
                    live(kind, c)
                    for kind in ("events", "good_events_lower", "good_events_upper")
                ]
                for c in CRITERIA
            }
    document = json.loads(goodput("replay", recording, "--format", "json").stdout)
    (row,) = document["slo"]
    found = {
        c: [row["criteria"][c][key] for key in ("events", "good_lower", "good_upper")]
        for c in CRITERIA
    }
    assert found == expected
    assert found["ttft"] == [20, 6, 6]  # 0 to 100 ms in steps of 20 ms
    assert (row["total"], row["output_tokens"]) == (20, 200)


def test_the_installed_program_does_all_three(tmp_path: Path) -> None:
    """As a user types it: check, record, replay, each a process of its own."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        done = subprocess.run(
            [PROGRAM, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout

    with SyntheticEngine() as engine:
        path = configuration(tmp_path / "c.yml", engine.url)
        engine.finish()
        recording = tmp_path / "r"
        code, said = run("check", "--config.file", path, "--live")
        assert (code, MODEL in said) == (0, True)
        period = ("--for", "400ms", "--interval", "200ms")
        assert run("record", "--config.file", path, *period, recording) == (0, "")
    code, said = run("replay", recording)
    assert (code, "source vllm: 0 gaps" in said) == (0, True)
    assert run("unknown")[0] == 2
