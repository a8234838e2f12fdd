"""`goodput check --live` for request logs: files, sockets, and what they can tell."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gateway_truth import unpacked
from raw_server import RawServer, answer, serving
from running_exporter import RunningExporter, wait_for
from synthetic_engine import free_port

from analyzer.cli import main
from analyzer.sources.log_probe import sample

JOINT = "{name: joint, good: {ttft: 300ms, tpot: 15ms, e2e: 1.2s}, objective: 0.9}"


def configured(directory: Path, *gateways: str, classes: str = JOINT) -> Path:
    """Writes a configuration with these logs."""
    config = directory / "c.yml"
    rows = "".join(f"  - {{{gateway}}}\n" for gateway in gateways)
    config.write_text(f"slo_classes: [{classes}]\ngateways:\n{rows}")
    return config


def check(config: Path, *arguments: str, form: str = "json") -> Result:
    """Runs `goodput check --live`."""
    every = ["check", "--config.file", str(config), "--live", *arguments]
    return CliRunner().invoke(main, [*every, "--format", form])


def rows(found: Result) -> list[dict[str, Any]]:
    """Returns the logs' rows of a JSON answer."""
    given: list[dict[str, Any]] = json.loads(found.stdout)["gateways"]
    return given


def write(path: Path, name: str, count: int | None = None) -> Path:
    """Writes a recorded log, or its first lines."""
    path.write_bytes(b"".join(line + b"\n" for line in unpacked(name)[:count]))
    return path


def test_the_document_has_the_fields_that_programs_read(tmp_path: Path) -> None:
    """Its fields are a contract; absent is null."""
    log = write(tmp_path / "access.log", "nginx-njs")
    found = check(configured(tmp_path, f"name: edge, path: '{log}'"))
    (row,) = rows(found)
    assert {key: row[key] for key in ("gateway", "place", "state", "detail")} == {
        "gateway": "edge",
        "place": str(log),
        "state": "read",
        "detail": "",
    }
    (file,) = row["files"]
    assert file == {
        "path": str(log),
        "state": "read",
        "detail": "",
        "bytes": log.stat().st_size,
        "written": pytest.approx(log.stat().st_mtime),
        "rotated": [],
        "read_from": None,
        "bytes_read": log.stat().st_size,
    }
    assert (row["format"], row["recognised"], row["framing"]) == (
        "nginx",
        True,
        "plain",
    )
    assert (row["looks_like"], row["unparsed"], row["counts"]) == (None, [], True)
    assert row["lines"] == row["requests"]["total"] == len(unpacked("nginx-njs"))
    assert row["criteria"] == ["e2e", "max_gap", "tpot", "ttft"]
    assert row["headers"] == [
        {"route": "/v1/chat/completions", "answers": 64, "with_first_token": False}
    ]
    (joint,) = row["classes"]
    assert joint["class"] == "joint"
    assert joint["requests"] == joint["good"] + joint["bad"] + joint["unevaluable"]
    criteria = {item["criterion"]: item for item in joint["criteria"]}
    assert set(criteria) == {"ttft", "tpot", "e2e"}
    for item in criteria.values():
        assert item["evaluable"] + sum(item["unknown"].values()) == item["answers"]
    assert criteria["ttft"]["unknown"] == {
        "not_streamed": 7,
        "no_token": 1,
    }
    assert row["requests"]["streams_without_usage"] == 2  # ended by an error
    assert row["clock"]["future"] == 0
    assert row["never_tells"]
    for finding in row["findings"]:
        assert set(finding) == {
            "code",
            "severity",
            "message",
            "fix",
            "file",
            "snippet",
        }
    assert {finding["severity"] for finding in row["findings"]} <= {"info"}
    assert found.exit_code == 0


def test_the_text_says_what_the_document_says(tmp_path: Path) -> None:
    """Criteria by class, findings with what to add, files with their rotated ones."""
    log = write(tmp_path / "access.log", "nginx")
    for number in range(1, 6):
        write(tmp_path / f"access.log.{number}", "nginx", 3)
    config = configured(tmp_path, f"name: edge, path: '{log}'")
    found = check(config, form="text")
    lines = found.stdout.splitlines()
    assert lines[0] == f"{config}: valid, 1 SLO class, 0 engines, 1 request log"
    assert f"edge ({log}): nginx, plain" in lines
    (file,) = [line for line in lines if line.startswith(f"  {log}: read; ")]
    assert file.endswith("access.log.3, access.log.2, access.log.1 and 2 more")
    assert "  232 lines at the end: 232 requests, 0 not parsed" in lines
    assert (
        "  class joint: 208 requests; 0 good, 56 bad, 152 unevaluable, 24 excluded"
        in (lines)
    )
    (ttft,) = [line for line in lines if line.startswith("    ttft ≤ 300ms")]
    why = "176 by lines that do not hold it, 14 not streamed"
    assert ttft.endswith(f"evaluable for 0 of 190 answers: {why}")
    # One change mends three findings, so it is told once.
    assert found.stdout.count("js_body_filter goodput.answer;") == 1
    assert sum(line.startswith("  warning: ") for line in lines) == 3
    assert "    see deploy/gateways/nginx/nginx.conf" in lines
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("make", "state", "detail", "code"),
    [
        (lambda _: None, "missing", "no such file", 3),
        (lambda log: log.mkdir(), "unreadable", "not a regular file", 3),
        (lambda log: log.symlink_to(log), "unreadable", "symbolic links", 3),
        (lambda log: log.touch(), "empty", "", 1),
        (lambda log: log.write_bytes(b"torn"), "read", "", 1),
    ],
    ids=["missing", "folder", "loop", "empty", "torn"],
)
def test_a_file_that_cannot_be_read_has_its_state(
    tmp_path: Path,
    make: Callable[[Path], None],
    state: str,
    detail: str,
    code: int,
) -> None:
    """Exit code 3 when it could not be looked at, 1 when there is nothing in it."""
    log = tmp_path / "access.log"
    make(log)
    found = check(configured(tmp_path, f"name: edge, path: '{log}'"))
    (row,) = rows(found)
    (file,) = row["files"]
    assert (row["state"], file["state"]) == (state, state)
    assert detail in file["detail"]
    assert row["format"] is None
    assert found.exit_code == code
    codes = [finding["code"] for finding in row["findings"]]
    assert codes == (["no_lines"] if code == 1 else [])


def test_a_file_that_we_may_not_read_is_unreadable(tmp_path: Path) -> None:
    """With the system's word for it, be it of the file or of its folder."""
    log = write(tmp_path / "access.log", "nginx", 3)
    log.chmod(0)
    before = os.geteuid()
    if before == 0:  # who may read every file
        os.seteuid(65534)
    try:
        found = sample(str(log))
    finally:
        os.seteuid(before)
    (file,) = found.files
    assert (file.state, file.detail) == ("unreadable", "Permission denied")
    assert found.chunks == ()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    """A mistyped path is found sooner by its first wrong folder."""
    log = tmp_path / "var" / "log" / "access.log"
    (row,) = rows(check(configured(tmp_path, f"name: edge, path: '{log}'")))
    assert row["files"][0]["detail"] == f"the folder {tmp_path / 'var'} is not there"


@pytest.mark.parametrize("packed", [False, True])
def test_an_empty_log_is_judged_by_what_it_was_rotated_into(
    tmp_path: Path, *, packed: bool
) -> None:
    """Just after a rotation the live file tells nothing."""
    log = tmp_path / "access.log"
    log.touch()
    write(tmp_path / "access.log.2", "nginx", 3)
    newest = write(tmp_path / "access.log.1", "envoy")
    if packed:
        (tmp_path / "access.log.1.gz").write_bytes(gzip.compress(newest.read_bytes()))
        newest.unlink()
    (row,) = rows(check(configured(tmp_path, f"name: edge, path: '{log}'")))
    (file,) = row["files"]
    assert (row["state"], file["state"]) == ("empty", "empty")
    assert file["read_from"] == ("access.log.1.gz" if packed else "access.log.1")
    assert len(file["rotated"]) == 2
    assert (row["format"], row["lines"]) == ("envoy", len(unpacked("envoy")))


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    """Some megabytes, whole lines only, however long the file is."""
    log = tmp_path / "access.log"
    lines = unpacked("envoy")
    with log.open("wb") as file:
        file.write(b"an old format\n" * 10)
        for _ in range(40):
            file.writelines(line + b"\n" for line in lines)
        file.write(lines[0][:100])  # being written now
    size = log.stat().st_size
    (row,) = rows(check(configured(tmp_path, f"name: edge, path: '{log}'")))
    (found,) = row["files"]
    assert found["bytes"] == size > 3 * found["bytes_read"] > 9 << 20
    assert row["unparsed"] == []
    assert 2000 < row["lines"] < 4000


def test_a_pattern_reads_every_log_but_not_the_rotated_ones_twice(
    tmp_path: Path,
) -> None:
    """As the exporter reads it: kubelet's rotated files belong to their log."""
    stamp = b"2026-11-29T14:10:48.123456789Z stdout F "
    for pod in ("a", "b"):
        folder = tmp_path / pod
        folder.mkdir()
        for name in ("0.log", "0.log.20261129-141048"):
            (folder / name).write_bytes(
                b"".join(stamp + line + b"\n" for line in unpacked("envoy"))
            )
    config = configured(tmp_path, f"name: edge, path: '{tmp_path}/*/0.log*'")
    (row,) = rows(check(config))
    assert sorted(file["path"] for file in row["files"]) == [
        f"{tmp_path}/a/0.log",
        f"{tmp_path}/b/0.log",
    ]
    assert row["framing"] == "cri"
    assert row["lines"] == 2 * len(unpacked("envoy"))
    (tmp_path / "c" / "0.log").mkdir(parents=True)
    (row,) = rows(check(config))
    (first, *_) = row["findings"]
    assert (first["code"], first["severity"]) == ("unreadable_files", "warning")
    assert "1 of 3 files" in first["message"]
    assert f"{tmp_path}/c/0.log: not a regular file" in first["message"]
    found = check(configured(tmp_path, f"name: edge, path: '{tmp_path}/*/1.log'"))
    (row,) = rows(found)
    assert (row["state"], row["detail"], row["files"]) == (
        "missing",
        "no file matches",
        [],
    )
    assert found.exit_code == 3


def test_the_worst_log_decides_the_exit_code(tmp_path: Path) -> None:
    """A finding is 1; a log that cannot be looked at is 3, and hides no other."""
    good = write(tmp_path / "good.log", "nginx-njs")
    bad = write(tmp_path / "bad.log", "traefik")
    gateways = [f"name: good, path: '{good}'", f"name: bad, path: '{bad}'"]
    assert check(configured(tmp_path, *gateways[:1])).exit_code == 0
    assert check(configured(tmp_path, *gateways)).exit_code == 1
    found = check(configured(tmp_path, *gateways, "name: gone, path: /nonexistent/a"))
    assert found.exit_code == 3
    assert [row["state"] for row in rows(found)] == ["read", "read", "missing"]


def test_without_live_no_log_is_touched(tmp_path: Path) -> None:
    """The check of a configuration alone needs nothing but the file."""
    config = configured(tmp_path, "name: gone, path: /nonexistent/a")
    arguments = ["check", "--config.file", str(config), "--format", "json"]
    found = CliRunner().invoke(main, arguments)
    assert (found.exit_code, json.loads(found.stdout)["gateways"]) == (0, [])


def test_two_logs_of_the_same_requests_are_found(tmp_path: Path) -> None:
    """They would count twice, unless one of them does not count."""
    logs = {n: write(tmp_path / f"{n}.log", "nginx-njs") for n in ("edge", "inner")}
    gateways = [f"name: {name}, path: '{log}'" for name, log in logs.items()]
    first, second = rows(check(configured(tmp_path, *gateways)))
    assert "counted_twice" not in [f["code"] for f in first["findings"]]
    (found,) = [f for f in second["findings"] if f["code"] == "counted_twice"]
    assert "edge" in found["message"]
    gateways[1] += ", counts: false"
    for row in rows(check(configured(tmp_path, *gateways))):
        assert "counted_twice" not in [f["code"] for f in row["findings"]]


def test_aliases_of_the_engines_hold_for_the_logs(tmp_path: Path) -> None:
    """A class on the served name takes requests that use another one."""
    log = write(tmp_path / "a.log", "nginx-njs")
    page = b'vllm:num_requests_running{engine="0",model_name="served"} 1\n'
    classes = JOINT.replace("good:", "match: {model: served}, good:")
    with RawServer(serving(answer(page))) as server:
        config = configured(tmp_path, f"name: edge, path: '{log}'", classes=classes)
        alone = rows(check(config))[0]["classes"][0]["requests"]
        with config.open("a") as file:
            file.write(
                f"engines: [{{name: e, url: '{server.url}', "
                "aliases: {fake-70b: served}}]\n"
            )
        (row,) = rows(check(config))
    assert alone == 0
    assert row["classes"][0]["requests"] > 50


def records(count: int) -> list[bytes]:
    """Returns what the middleware sends of good streams."""
    record = {
        "format": "goodput-request",
        "version": 1,
        "seq": 1,
        "start": time.time() - 2.0,
        "route": "/v1/chat/completions",
        "model": "m",
        "status": 200,
        "outcome": "ok",
        "stream": True,
        "streamed": True,
        "ttft_s": 0.1,
        "last_content_s": 0.3,
        "end_s": 0.31,
        "done_s": 0.31,
        "completion_tokens": 21,
        "tokens_kind": "usage",
    }
    return [json.dumps(record).encode()] * count


def send_soon(family: int, place: Any, lines: list[bytes]) -> threading.Thread:  # noqa: ANN401
    """Sends datagrams as soon as somebody receives there."""

    def run() -> None:
        sock = socket.socket(family, socket.SOCK_DGRAM)

        def sent(line: bytes) -> bool:
            try:
                sock.sendto(line, place)
            except OSError:
                return False
            return True

        for line in lines:
            wait_for(partial(sent, line))
        sock.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_free_socket_is_listened_to_when_asked_for(tmp_path: Path) -> None:
    """What comes is read as the exporter would, and the socket is gone afterwards."""
    path = tmp_path / "requests.sock"
    config = configured(tmp_path, f"name: engine, socket: 'unix://{path}'")
    found = check(config)
    (row,) = rows(found)
    assert (row["state"], found.exit_code) == ("not_probed", 0)
    assert "--listen" in row["detail"]
    assert not path.exists()

    sender = send_soon(socket.AF_UNIX, str(path), records(5))
    found = check(config, "--listen", "1s")
    sender.join()
    (row,) = rows(found)
    assert (row["state"], row["format"], row["lines"]) == ("read", "middleware", 5)
    assert row["classes"][0]["good"] == 5
    assert found.exit_code == 0
    assert not path.exists()

    found = check(config, "--listen", "50ms")
    (row,) = rows(found)
    assert (row["state"], row["detail"]) == ("silent", "nothing came in 50ms")
    assert found.exit_code == 1


def test_syslog_is_listened_to_without_its_headers(tmp_path: Path) -> None:
    """Of HAProxy's datagrams the lines are read, not what syslog puts before them."""
    port = free_port()
    config = configured(tmp_path, f"name: edge, syslog: 'udp://127.0.0.1:{port}'")
    lines = [
        b"<134>Nov 29 14:02:18 haproxy[9]: " + x
        for x in unpacked("haproxy-stamped")[:40]
    ]
    stop = threading.Event()

    def run() -> None:  # UDP tells nobody that nobody listens yet
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while not stop.wait(0.1):
                for line in lines:
                    sock.sendto(line, ("127.0.0.1", port))

    sender = threading.Thread(target=run)
    sender.start()
    (row,) = rows(check(config, "--listen", "500ms"))
    stop.set()
    sender.join()
    assert (row["state"], row["format"], row["unparsed"]) == ("read", "haproxy", [])
    assert row["lines"] >= 40


def test_sockets_of_a_running_exporter_are_left_to_it(tmp_path: Path) -> None:
    """They are said to be in use, and it goes on reading there."""
    path, port = tmp_path / "requests.sock", free_port()
    config = configured(
        tmp_path,
        f"name: engine, socket: 'unix://{path}'",
        f"name: edge, syslog: 'udp://127.0.0.1:{port}'",
        "name: piped, path: '-'",
    )
    with RunningExporter(f"--config.file={config}") as exporter:
        wait_for(path.exists)
        found = check(config, "--listen", "200ms")
        states = {row["gateway"]: row["state"] for row in rows(found)}
        assert states == {"engine": "in_use", "edge": "in_use", "piped": "not_probed"}
        assert found.exit_code == 0
        send_soon(socket.AF_UNIX, str(path), records(3)).join()
        name = "goodput_log_lines_total"
        wait_for(lambda: exporter.value(name, gateway="engine") == 3)


def test_another_file_at_a_sockets_place_is_left_there(tmp_path: Path) -> None:
    """It is no socket, and may be somebody's data."""
    path = tmp_path / "requests.sock"
    path.write_text("data")
    config = configured(tmp_path, f"name: engine, socket: 'unix://{path}'")
    found = check(config, "--listen", "50ms")
    (row,) = rows(found)
    assert (row["state"], found.exit_code) == ("unreadable", 3)
    assert "is not a socket" in row["detail"]
    assert path.read_text() == "data"


def test_a_duration_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2, as for every wrong call."""
    config = configured(tmp_path, "name: piped, path: '-'")
    found = check(config, "--listen", "soon")
    assert found.exit_code == 2
    assert "--listen is a duration" in found.output
