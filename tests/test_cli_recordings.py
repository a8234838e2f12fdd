"""`goodput record` and `replay`: what is on disk, what is told, and what is broken."""

from __future__ import annotations

import io
import json
import lzma
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from episodes import DIRECTORY
from raw_server import Peer, RawServer, answer, head, saying, serving, stalling
from running_exporter import RunningExporter, configuration, wait_for
from synthetic_engine import MODEL, SyntheticEngine, free_port

from analyzer.cli import main

PROGRAM = Path(sys.executable).with_name("goodput")
COLUMNS = "n,time,status,seconds,bytes"
LINE = 'vllm:generation_tokens_total{engine="0",model_name="m"} '


def goodput(*arguments: str | Path) -> Result:
    """Runs `goodput` in this process."""
    return CliRunner().invoke(main, list(map(str, arguments)))


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

    def script(peer: Peer) -> None:
        for body in served:
            if peer.request():
                peer.send(answer(body))

    recording = tmp_path / "r"
    with RawServer(script) as server:
        path = configuration(tmp_path / "c.yml", server.url, interval="200ms")
        done = goodput("record", "--config.file", path, "--for", "800ms", recording)
    assert done.exit_code == 0
    assert f"{recording}: 4 scrapes, 0 failed" in done.stderr
    pages = sorted((recording / "scrapes").glob("*.prom"))
    assert [page.name for page in pages] == [f"{n:04d}.prom" for n in range(4)]
    assert [page.read_bytes() for page in pages] == served
    lines = index(recording)
    assert [line[0] for line in lines] == ["0", "1", "2", "3"]
    assert [line[2] for line in lines] == ["200"] * 4
    assert [int(line[4]) for line in lines] == [len(body) for body in served]
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


def config_file(folder: Path, *, ttft: str = "1s", objective: str = "0.95") -> Path:
    """Writes classes alone, as for a replay of somebody else's recording."""
    path = folder / "classes.yml"
    path.write_text(
        f"slo_classes: [{{name: chat, good: {{ttft: {ttft}}}, objective: {objective}}}]"
    )
    return path


WINDOW_FIELDS = {
    "start": float,
    "end": float,
    "target": str,
    "model": str,
    "rank": str,
    "family": str,
    "cause": (str, type(None)),
    "confidence": (int, float),
    "evidence": list,
    "missing": list,
    "candidates": list,
    "advice": list,
    "requests_per_second": (int, float, type(None)),
    "tokens_per_second": (int, float, type(None)),
}
SLO_FIELDS = {
    "class": str,
    "model": str,
    "total": int,
    "good": (int, type(None)),
    "excluded": (int, type(None)),
    "unevaluable": (int, type(None)),
    "attainment": (float, type(None)),
    "bounds": list,
    "missed": dict,
}
SOURCE_FIELDS = {
    "source": str,
    "up": bool,
    "gaps": int,
    "resets": int,
    "missing_signals": list,
}


def has_fields(row: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Whether a row has these fields with values of these types."""
    return all(name in row and isinstance(row[name], t) for name, t in fields.items())


def test_the_document_of_a_replay_has_the_fields_of_its_contract(
    tmp_path: Path,
) -> None:
    """Programs read them; more may be there, none may be missing."""
    recording = DIRECTORY / "restart-a"
    path = config_file(tmp_path)
    found = goodput("replay", recording, "--config.file", path, "--format", "json")
    document = json.loads(found.stdout)
    assert {"windows", "slo", "capacity", "sources"} <= document.keys()
    assert len(document["windows"]) > 1
    assert all(has_fields(row, WINDOW_FIELDS) for row in document["windows"])
    down = [row for row in document["windows"] if row["cause"] == "down"]
    assert [row["family"] for row in down] == ["fault"]
    for item in down[0]["evidence"]:
        assert {"signal", "value", "threshold", "source"} <= item.keys()
    assert all(has_fields(row, SLO_FIELDS) for row in document["slo"])
    (row,) = document["slo"]
    assert row["class"] == "chat"
    assert 0 <= row["bounds"][0] <= row["bounds"][1] <= 1
    assert {"ttft", "error"} <= row["missed"].keys()
    assert row["good"] is None  # engine metrics never tell
    rates = document["capacity"]["requests_per_second"]
    assert rates.keys() == {"lower", "estimate", "upper"}
    assert "headroom_ratio" in document["capacity"]
    engine = next(row for row in document["sources"] if row["source"] == "engine")
    assert has_fields(engine, SOURCE_FIELDS)
    assert (engine["gaps"], engine["resets"]) == (1, 1)


def test_the_times_of_a_replay_are_those_of_the_index(tmp_path: Path) -> None:
    """Unix seconds, from the first scrape to the last."""
    recording = DIRECTORY / "healthy-a"
    path = config_file(tmp_path)
    found = goodput("replay", recording, "--config.file", path, "--format", "json")
    windows = json.loads(found.stdout)["windows"]
    with tarfile.open(recording / "scrapes.tar.xz") as archive:
        name = next(n for n in archive.getnames() if n.endswith("index.csv"))
        file = archive.extractfile(name)
        assert file is not None
        first, *_, last = file.read().decode().splitlines()[1:]
    assert windows[0]["start"] == float(first.split(",")[1])
    assert windows[-1]["end"] == float(last.split(",")[1])


def test_the_text_of_a_replay_says_what_its_document_says(tmp_path: Path) -> None:
    """The same totals, bounds, windows and sources, for people."""
    recording = DIRECTORY / "restart-a"
    path = config_file(tmp_path)
    arguments = ("replay", recording, "--config.file", path)
    document = json.loads(goodput(*arguments, "--format", "json").stdout)
    text = goodput(*arguments).output
    (row,) = document["slo"]
    low, high = row["bounds"]
    assert f"{row['total']} requests" in text
    assert f"between {low:.2%} and {high:.2%}" in text
    assert "objective 95.00%" in text
    shown = [line for line in text.splitlines() if re.match(r"\d+\.\d \+", line)]
    assert len(shown) == len(document["windows"])
    for line, window in zip(shown, document["windows"], strict=True):
        assert line.startswith(f"{window['start']:.1f} +")
        assert window["family"] in line
    assert sum("fault/down" in line for line in shown) == 1
    assert "1 gaps, 1 counter resets" in text


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("ttft", "objective", "code"), [("1s", "0.5", 0), ("1ms", "0.5", 1)]
)
def test_the_exit_code_says_whether_an_objective_is_surely_missed(
    tmp_path: Path, ttft: str, objective: str, code: int, form: str
) -> None:
    """In either format; the output is complete all the same."""
    path = config_file(tmp_path, ttft=ttft, objective=objective)
    found = goodput(
        "replay", DIRECTORY / "healthy-a", "--config.file", path, "--format", form
    )
    assert found.exit_code == code
    if form == "json":
        assert json.loads(found.stdout)["slo"]
    else:
        assert ("MISSED" in found.output) is bool(code)


def test_a_replay_without_classes_judges_nothing_and_says_so(tmp_path: Path) -> None:
    """The windows and sources are told, exit code 0."""
    scrapes = tmp_path / "scrapes"
    scrapes.mkdir()
    (scrapes / "index.csv").write_text("n,time,status\n0,1.0,200\n1,2.0,200\n")
    for number in range(2):
        (scrapes / f"{number:04d}.prom").write_text(f"{LINE}{number}\n")
    found = goodput("replay", tmp_path, "--format", "json")
    assert found.exit_code == 0
    assert found.stderr == (
        f"{tmp_path / 'config.yml'} is not there: nothing is judged without classes\n"
    )
    document = json.loads(found.stdout)
    assert document["slo"] == []
    assert document["sources"][0]["up"] is True


HEADER = "n,time,status,seconds,bytes\n"
BROKEN_INDEX = {
    "empty": ("", "{index}: needs the columns n, status, time"),
    "other columns": ("a,b\n1,2\n", "{index}: needs the columns n, status, time"),
    "no scrapes": (HEADER, "{folder}: the recording has no scrapes"),
    "bad time": (
        f"{HEADER}0,1.0,200,0.1,5\n1,noon,200,0.1,5\n",
        "{index}: line 3: time must be a number, got 'noon'",
    ),
    "no time": (f"{HEADER}0\n", "{index}: line 2: time must be a number, got ''"),
    "endless time": (
        f"{HEADER}0,inf,200,0.1,5\n",
        "{index}: line 2: time must be a number, got 'inf'",
    ),
    "bad duration": (
        f"{HEADER}0,1.0,200,quick,5\n",
        "{index}: line 2: seconds must be a number, got 'quick'",
    ),
    "bad number": (
        f"{HEADER}first,1.0,200,0.1,5\n",
        "{index}: line 2: n must be a number, got 'first'",
    ),
    "another digit": (
        f"{HEADER}²,1.0,200,0.1,5\n",
        "{index}: line 2: n must be a number, got '²'",
    ),
    "a path": (
        f"{HEADER}../../secret,1.0,200,0.1,5\n",
        "{index}: line 2: n must be a number, got '../../secret'",
    ),
    "missing page": (
        f"{HEADER}0,1.0,200,0.1,5\n1,2.0,200,0.1,5\n",
        "{folder}/scrapes/0001.prom: is in the index but not there",
    ),
    "huge field": (
        f"{HEADER}0,1.0,{'x' * 200_000},0.1,5\n",
        "{index}: line 2: field larger than field limit (131072)",
    ),
}


@pytest.mark.parametrize(("text", "message"), BROKEN_INDEX.values(), ids=BROKEN_INDEX)
def test_a_broken_index_is_told_by_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    """One sentence, exit code 3, and no half of an answer."""
    scrapes = tmp_path / "scrapes"
    scrapes.mkdir()
    (scrapes / "0000.prom").write_text(f"{LINE}1\n")
    (scrapes / "index.csv").write_text(text, encoding="utf-8")
    found = goodput("replay", tmp_path, "--config.file", config_file(tmp_path))
    expected = message.format(folder=tmp_path, index=scrapes / "index.csv")
    assert (found.exit_code, found.stdout) == (3, "")
    assert found.stderr == f"Error: {expected}\n"


def packed(**files: bytes) -> bytes:
    """Returns an archive with these members of `scrapes/`."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:xz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"scrapes/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


def whole() -> bytes:
    """Returns the archive of a real recording."""
    return (DIRECTORY / "healthy-a" / "scrapes.tar.xz").read_bytes()


def flipped() -> bytes:
    """Returns it with bytes in its middle turned over."""
    data = bytearray(whole())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(b ^ 0xFF for b in data[middle : middle + 64])
    return bytes(data)


BROKEN_ARCHIVE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "not a readable archive: "),
    "garbage": (lambda: b"garbage" * 999, "not a readable archive: "),
    "cut": (lambda: whole()[: len(whole()) // 2], "not a readable archive: "),
    "cut at its begin": (lambda: whole()[:100], "not a readable archive: "),
    "damaged": (flipped, "not a readable archive: "),
    "no archive in it": (lambda: lzma.compress(b"hello" * 999), "not a readable arch"),
    "without an index": (lambda: packed(other=b"x"), "no index.csv"),
}


@pytest.mark.parametrize(
    ("make", "message"), BROKEN_ARCHIVE.values(), ids=BROKEN_ARCHIVE
)
def test_a_broken_archive_is_told_in_one_sentence(
    tmp_path: Path, make: Callable[[], bytes], message: str
) -> None:
    """Its file is named, exit code 3, no traceback."""
    archive = tmp_path / "scrapes.tar.xz"
    archive.write_bytes(make())
    found = goodput("replay", tmp_path, "--config.file", config_file(tmp_path))
    assert (found.exit_code, found.stdout) == (3, "")
    assert found.stderr.startswith(f"Error: {archive}: {message}")
    assert found.stderr.count("\n") == 1


def test_a_folder_that_is_no_recording_is_told(tmp_path: Path) -> None:
    """What was looked for, and where; a missing folder alike."""
    for folder in (tmp_path, tmp_path / "missing"):
        found = goodput("replay", folder, "--config.file", config_file(tmp_path))
        assert found.exit_code == 3
        assert found.stderr == (
            f"Error: {folder}: no recording: neither scrapes/index.csv nor "
            "scrapes.tar.xz\n"
        )


@pytest.mark.parametrize("name", ["access.log.gz", "access.log.xz"])
def test_a_broken_request_log_is_told(tmp_path: Path, name: str) -> None:
    """It is part of the recording: half of it would be a wrong count."""
    scrapes = tmp_path / "scrapes"
    scrapes.mkdir()
    (scrapes / "index.csv").write_text(f"{HEADER}0,1.0,200,0.1,5\n")
    (scrapes / "0000.prom").write_text(f"{LINE}1\n")
    (tmp_path / name).write_bytes(b"neither gzip nor xz")
    found = goodput("replay", tmp_path, "--config.file", config_file(tmp_path))
    assert found.exit_code == 3
    assert found.stderr.startswith(f"Error: {tmp_path / name}: cannot be read: ")
    assert found.stderr.count("\n") == 1


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
