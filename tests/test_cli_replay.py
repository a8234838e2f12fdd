"""`goodput replay`: the document, the text, and recordings broken in every way."""

from __future__ import annotations

import io
import json
import lzma
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from episodes import DIRECTORY
from goodput_command import goodput

LINE = 'vllm:generation_tokens_total{engine="0",model_name="m"} '


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
    shutil.copy(DIRECTORY / "restart-a" / "scrapes.tar.xz", tmp_path)
    path = config_file(tmp_path)
    found = goodput("replay", tmp_path, "--config.file", path, "--format", "json")
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
    # Without a request log nobody can tell.
    assert (row["good"], row["attainment"], row["excluded"]) == (None, None, None)
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
    shutil.copy(DIRECTORY / "restart-a" / "scrapes.tar.xz", tmp_path)
    path = config_file(tmp_path)
    arguments = ("replay", tmp_path, "--config.file", path)
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


def test_a_request_log_beside_the_scrapes_makes_the_counts_exact(
    tmp_path: Path,
) -> None:
    """Good, bad and unevaluable add up to the total; the engine's bounds stay."""
    path = config_file(tmp_path)
    arguments = ("replay", DIRECTORY / "restart-a", "--config.file", path)
    document = json.loads(goodput(*arguments, "--format", "json").stdout)
    (row,) = document["slo"]
    assert has_fields(row, SLO_FIELDS)
    assert row["source"] == "gateway"
    assert row["good"] + row["bad"] + row["unevaluable"] == row["total"] > 0
    assert row["attainment"] == row["good"] / (row["good"] + row["bad"])
    low, high = row["engine_bounds"]
    assert 0 <= low <= high <= 1
    sources = [source["source"] for source in document["sources"]]
    assert sources == ["engine", "gateway"]
    text = goodput(*arguments).output
    assert f"{row['good']} good, {row['bad']} bad, {row['unevaluable']} unev" in text


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


def test_an_engine_that_never_answered_is_not_called_idle(tmp_path: Path) -> None:
    """Nobody knows what it does, or whether the address is right: unknown."""
    (tmp_path / "scrapes").mkdir()
    (tmp_path / "scrapes" / "index.csv").write_text(
        "n,time,status,seconds,bytes\n0,100,refused,0.01,0\n1,102,refused,0.01,0\n"
    )
    found = goodput("replay", tmp_path, "--format", "json")
    document = json.loads(found.stdout)
    (window,) = document["windows"]
    assert (window["family"], window["cause"], window["confidence"]) == (
        "unknown",
        None,
        0.0,
    )
    assert window["missing"] == ["a page of the engine"]
    assert not document["sources"][0]["up"]


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
