from __future__ import annotations

import ast
import asyncio
import fcntl
import json
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from asgi_driving import Receiver, Record, answering, drive, exchange
from open_files import open_files

from exporter import goodput_middleware
from exporter.goodput_middleware import GoodputMiddleware, _RotatingFile

FILE = Path(goodput_middleware.__file__)
# One writer of several: it waits for a byte on standard input, then records.
WRITER = """
    import asyncio, sys
    from goodput_middleware import GoodputMiddleware

    async def app(scope, receive, send):
        pass

    async def unused(*message):
        pass

    async def main(path, cap, count):
        middleware = GoodputMiddleware(app, file_path=path, file_max_bytes=cap)
        scope = {"type": "http", "method": "POST", "path": "/generate", "headers": []}
        print("ready", flush=True)
        sys.stdin.read(1)
        for _ in range(count):
            await middleware({**scope}, unused, unused)
            await asyncio.sleep(0)
        middleware.close()

    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
FORKING = """
    import asyncio, os, sys
    from goodput_middleware import GoodputMiddleware

    async def app(scope, receive, send):
        pass

    middleware = GoodputMiddleware(app, file_path=sys.argv[1])
    scope = {"type": "http", "method": "POST", "path": "/generate", "headers": []}
    asyncio.run(middleware({**scope}, app, app))
    child = os.fork()
    for _ in range(2):
        asyncio.run(middleware({**scope}, app, app))
    middleware.close()
    if child:
        os.wait()
"""


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    """Returns a path at which nobody listens yet."""
    return tmp_path / "requests.sock"


@pytest.fixture
def middleware(socket_path: Path) -> Iterator[GoodputMiddleware]:
    """Yields a middleware that sends to `socket_path`."""
    opened = GoodputMiddleware(answering([]), socket_path=str(socket_path))
    yield opened
    opened.close()


def requests(middleware: GoodputMiddleware, count: int) -> None:
    """Serves *count* requests; the middleware stays open."""

    async def run() -> None:
        for _ in range(count):
            await exchange(middleware)

    asyncio.run(run())


def sequence(receiver: Receiver, count: int) -> list[int]:
    """Returns the sequence numbers of the next records."""
    return [receiver.record()["seq"] for _ in range(count)]


def records(*paths: Path) -> list[Record]:
    """Returns the records of files, each line of which must be a whole one."""
    return [
        json.loads(line)
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def test_a_receiver_may_come_late(
    middleware: GoodputMiddleware, socket_path: Path
) -> None:
    """Records wait for a receiver that is not there yet."""
    requests(middleware, 5)
    with Receiver(socket_path) as receiver:
        assert sequence(receiver, 5) == [1, 2, 3, 4, 5]


def test_a_receiver_may_restart(
    middleware: GoodputMiddleware, socket_path: Path
) -> None:
    """A receiver that goes and comes again, by the same path, misses nothing."""
    with Receiver(socket_path) as receiver:
        requests(middleware, 3)
        assert sequence(receiver, 3) == [1, 2, 3]
    requests(middleware, 3)
    with Receiver(socket_path) as receiver:
        requests(middleware, 3)
        assert sequence(receiver, 6) == [4, 5, 6, 7, 8, 9]
        record = receiver_record(middleware, receiver)
    assert (record["seq"], record["dropped"], record["failed"]) == (10, 0, 0)


def receiver_record(middleware: GoodputMiddleware, receiver: Receiver) -> Record:
    """Returns the record of one more request."""
    requests(middleware, 1)
    return receiver.record()


def test_a_burst_larger_than_the_sockets_queue_arrives(
    middleware: GoodputMiddleware, socket_path: Path
) -> None:
    """Requests that end together lose nothing: the kernel holds 10 datagrams."""
    with Receiver(socket_path) as receiver:
        requests(middleware, 500)  # nobody reads meanwhile, and no request waits
        assert sequence(receiver, 500) == list(range(1, 501))


def test_a_full_queue_drops_and_counts(
    middleware: GoodputMiddleware, socket_path: Path
) -> None:
    """Without a receiver the queue is bounded, and later records tell the loss."""
    count = goodput_middleware.QUEUED_RECORDS + 100
    requests(middleware, count)
    with Receiver(socket_path) as receiver:
        kept = sequence(receiver, goodput_middleware.QUEUED_RECORDS)
        requests(middleware, 1)
        # The thread may have held a record of its own while the queue filled.
        record = receiver.record()
        if record["seq"] == len(kept) + 1:
            kept.append(record["seq"])
            record = receiver.record()
    assert kept == list(range(1, len(kept) + 1))
    assert record["seq"] == count + 1
    assert record["dropped"] == count - len(kept) > 90


def test_records_do_not_wait_for_ever(
    middleware: GoodputMiddleware,
    socket_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A receiver that stays away costs the records, which later ones count."""
    monkeypatch.setattr(goodput_middleware, "HOLD_SECONDS", 0.0)
    requests(middleware, 4)
    middleware.close()
    with Receiver(socket_path) as receiver:
        record = receiver_record(middleware, receiver)
    assert (record["seq"], record["dropped"]) == (5, 4)


def test_one_writer_has_one_name_and_a_fork_has_another(tmp_path: Path) -> None:
    """After a fork each process counts for itself, under its own name."""
    path = tmp_path / "requests.jsonl"
    script = textwrap.dedent(FORKING)
    run(script, path)
    found: dict[tuple[str, int], list[int]] = {}
    for record in records(path):
        found.setdefault((record["writer"], record["pid"]), []).append(record["seq"])
    assert sorted(found.values()) == [[1, 2], [1, 2, 3]]
    assert len({pid for _, pid in found}) == 2


def run(script: str, *arguments: object) -> None:
    """Runs *script* beside the file alone, in an interpreter without any package."""
    subprocess.run(
        [sys.executable, "-S", "-c", script, *map(str, arguments)],
        cwd=FILE.parent,
        stdin=subprocess.DEVNULL,
        env={},
        check=True,
        timeout=60,
    )


def write_together(path: Path, cap: int, count: int) -> None:
    """Has two processes record *count* requests each, at the same time."""
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-c",
                textwrap.dedent(WRITER),
                path,
                str(cap),
                str(count),
            ],
            cwd=FILE.parent,
            env={},  # the folder is on the path whatever the tests run with
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        _, _ = writer.communicate(b"x", timeout=60)
        assert writer.returncode == 0


def test_two_processes_rotate_one_file(tmp_path: Path) -> None:
    """Both write whole lines; over one rotation each record is there once."""
    path = tmp_path / "requests.jsonl"
    one = tmp_path / "one.jsonl"
    run(textwrap.dedent(WRITER), one, 1 << 30, 1)
    count = 600
    cap = int(2 * count * one.stat().st_size * 0.6)
    write_together(path, cap, count)
    backup = Path(f"{path}.1")
    found: dict[str, list[int]] = {}
    for record in records(backup, path):
        found.setdefault(record["writer"], []).append(record["seq"])
    assert [sorted(seqs) for seqs in found.values()] == [[*range(1, count + 1)]] * 2
    assert path.stat().st_size <= cap
    assert sorted(p.name for p in tmp_path.glob("requests*")) == [
        "requests.jsonl",
        "requests.jsonl.1",
    ]


def test_who_comes_second_does_not_rotate_again(tmp_path: Path) -> None:
    """A process that finds the file renamed leaves the new one and the backup."""
    path = tmp_path / "requests.jsonl"
    first, second = _RotatingFile(str(path), 12), _RotatingFile(str(path), 12)
    first.write(b"first")
    second.write(b"x")
    first.write(b"other")
    second._rotate()  # as if it had looked at the size just before
    second.write(b"y")
    assert Path(f"{path}.1").read_bytes() == b"first\nx\n"
    assert path.read_bytes() == b"other\ny\n"


def test_nobody_waits_for_who_rotates(tmp_path: Path) -> None:
    """While another process holds the file, a line goes into it over the cap."""
    path = tmp_path / "requests.jsonl"
    target = _RotatingFile(str(path), 10)
    target.write(b"123456")
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        target.write(b"78901")
    assert path.read_bytes() == b"123456\n78901\n"
    target.write(b"2")
    assert path.read_bytes() == b"2\n"


def test_many_rotations_keep_the_cap_and_whole_lines(tmp_path: Path) -> None:
    """However often it turns over, both files stay small and end with the newest."""
    path = tmp_path / "requests.jsonl"
    cap, count = 16_384, 900
    write_together(path, cap, count)
    backup = Path(f"{path}.1")
    kept = records(backup, path)
    newest = {record["writer"]: record["seq"] for record in kept}
    assert max(newest.values()) == count
    assert len(kept) < 2 * count
    # Two lines, when the other process is renaming the file at that moment.
    longest = max(len(line) for line in backup.read_bytes().splitlines(keepends=True))
    assert max(path.stat().st_size, backup.stat().st_size) <= cap + 2 * longest


def test_a_file_that_was_moved_is_written_anew(tmp_path: Path) -> None:
    """A rename or removal by somebody else is seen at the next record."""
    path = tmp_path / "requests.jsonl"
    middleware = GoodputMiddleware(answering([]), file_path=str(path))
    drive(middleware)
    path.rename(tmp_path / "moved.jsonl")
    drive(middleware)
    assert [record["seq"] for record in records(path)] == [2]


def test_the_file_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GOODPUT_FILE and its cap replace the socket."""
    path = tmp_path / "requests.jsonl"
    monkeypatch.setenv("GOODPUT_FILE", str(path))
    monkeypatch.setenv("GOODPUT_FILE_MAX_BYTES", "10")
    middleware = GoodputMiddleware(answering([]))
    drive(middleware)
    drive(middleware)
    assert [record["seq"] for record in records(path)] == [2]
    assert [record["seq"] for record in records(Path(f"{path}.1"))] == [1]


def test_a_disk_that_refuses_costs_only_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk requests go on; records are dropped and counted."""
    monkeypatch.setattr(goodput_middleware, "HOLD_SECONDS", 0.0)
    link = tmp_path / "requests.jsonl"
    link.symlink_to("/dev/full")
    middleware = GoodputMiddleware(answering([]), file_path=str(link))
    assert len(drive(middleware)) == 2
    link.unlink()
    drive(middleware)
    assert [(r["seq"], r["dropped"]) for r in records(link)] == [(2, 1)]


def test_a_line_that_the_disk_cut_ends_before_the_next(tmp_path: Path) -> None:
    """After half a line the next record begins on a line of its own."""
    path = tmp_path / "requests.jsonl"
    script = """
        import resource, signal, sys
        from goodput_middleware import _RotatingFile

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        target = _RotatingFile(sys.argv[1], 1 << 20)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
        try:
            target.write(b'{"first": 1}')
        except OSError as error:
            assert "cut" in str(error), error
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        target.write(b'{"second": 2}')
    """
    run(textwrap.dedent(script), path)
    assert path.read_bytes() == b'{"fir\n{"second": 2}\n'


def test_the_file_needs_nothing_else(tmp_path: Path) -> None:
    """A copy alone, in an interpreter without packages, imports and records."""
    copied = Path(shutil.copy(FILE, tmp_path))
    path = tmp_path / "requests.jsonl"
    subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(WRITER), path, "1000", "1"],
        cwd=copied.parent,
        stdin=subprocess.DEVNULL,
        env={},
        check=True,
        timeout=60,
    )
    assert [record["seq"] for record in records(path)] == [1]


def test_the_file_is_python_3_9() -> None:
    """Its syntax is old enough for the servers it is copied to."""
    text = FILE.read_text(encoding="utf-8")
    assert ast.parse(text, feature_version=(3, 9)).body
    newer = f"{text}\nmatch 1:\n    case 1:\n        pass\n"
    with pytest.raises(SyntaxError):
        ast.parse(newer, feature_version=(3, 9))


def test_the_queue_is_emptied_when_the_server_ends(socket_path: Path) -> None:
    """At the end of the lifespan what is queued is still sent, and the thread ends."""
    with Receiver(socket_path) as receiver:
        middleware = GoodputMiddleware(answering([]), socket_path=str(socket_path))
        threads, files = threading.active_count(), open_files()
        requests(middleware, 5)

        async def end() -> None:
            async def message() -> dict[str, object]:
                return {}

            async def nothing(_message: object) -> None:
                return

            await middleware({"type": "lifespan"}, message, nothing)

        asyncio.run(end())
        assert threading.active_count() == threads
        assert open_files() == files
        assert sequence(receiver, 5) == [1, 2, 3, 4, 5]
