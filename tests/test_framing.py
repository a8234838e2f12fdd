from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rotating_log import line, numbers, rotate
from tail_reading import GRACE, Reading, append

from analyzer.gateways.framing import (
    Framing,
    FramingState,
    Unframed,
    Unframer,
    recognise,
)

TIME = b"2026-11-29T14:10:48.123456789"


def cri(tag: bytes, text: bytes, stream: bytes = b"stdout") -> bytes:
    """Returns a line as containerd writes it."""
    return b"%sZ %s %s %s\n" % (TIME, stream, tag, text)


def docker(text: str, stream: str = "stdout") -> bytes:
    """Returns a line as Docker's json-file driver writes it."""
    found = {"log": text, "stream": stream, "time": TIME.decode() + "Z"}
    return json.dumps(found).encode() + b"\n"


def unframed(state: FramingState, data: bytes) -> list[bytes]:
    """Returns the messages in lines that come at once."""
    return Unframer(state).feed(data.splitlines()).messages


@pytest.mark.parametrize(
    ("text", "framing"),
    [
        (cri(b"F", b"x"), Framing.CRI),
        (cri(b"P", b"x", b"stderr"), Framing.CRI),
        (cri(b"F:tag", b"x"), Framing.CRI),
        (cri(b"F", b"").rstrip() + b"\n", Framing.CRI),
        (b"2026-11-29T14:10:48.1+02:00 stdout F x\n", Framing.CRI),
        (docker("x\n"), Framing.DOCKER),
        (b'{"log":"x\\n","time":"t"}\n', Framing.DOCKER),
        (b'{"log":"x"}\n', Framing.AUTO),
        (b'{"log":"x","time":3}\n', Framing.AUTO),
        (b"2026-11-29T14:10:48Z stdout is a word\n", Framing.AUTO),
        (b'{"time":"t","status":200}\n', Framing.AUTO),
        (b"\n", Framing.AUTO),
    ],
)
def test_the_framing_of_a_line_is_recognised(text: bytes, framing: Framing) -> None:
    """CRI and Docker lines are known by their form, near misses are not."""
    # Docker writes no space after the colon of the first key.
    text = text.replace(b'{"log": ', b'{"log":')
    assert recognise(text.rstrip(b"\n")) is framing


@pytest.mark.parametrize("framing", [Framing.AUTO, Framing.CRI])
def test_cri_parts_are_joined_by_stream(framing: Framing) -> None:
    """Parts of stdout and stderr may take turns, apart; blanks in the text are kept."""
    data = (
        cri(b"F", b"  one ")
        + cri(b"P", b"two-")
        + cri(b"P", b"err-", b"stderr")
        + cri(b"P", b" ")
        + cri(b"F", b"or", b"stderr")
        + cri(b"F", b"end")
        + cri(b"F", b"")
    )
    found = Unframer(FramingState(framing)).feed(data.splitlines())
    assert found.messages == [b"  one ", b"two- end", b""]
    assert found.errors == [b"err-or"]


def test_cri_lines_whose_text_is_empty_may_lack_the_last_blank() -> None:
    """Editors and shippers strip it; the message is empty then."""
    data = cri(b"P", b"a") + cri(b"F", b"").rstrip() + b"\n"
    assert unframed(FramingState(Framing.CRI), data) == [b"a"]


def test_docker_parts_are_joined_and_escapes_undone() -> None:
    """A part has no newline at its end; text comes back as UTF-8."""
    data = docker('{"a":"é') + docker("err\n", "stderr") + docker(' \\"}\n')
    data += docker("\n")
    found = Unframer(FramingState(Framing.DOCKER)).feed(data.splitlines())
    assert found.messages == ['{"a":"é \\"}'.encode(), b""]
    assert found.errors == [b"err"]


@pytest.mark.parametrize(
    ("framing", "framed"), [(Framing.CRI, cri(b"F", b"b")), (Framing.DOCKER, None)]
)
def test_lines_of_another_form_are_passed_on_and_counted(
    framing: Framing, framed: bytes | None
) -> None:
    """A line that is not framed is a message of its own, as it is."""
    framed = framed or docker("b\n")
    strange = [b"plain text", b'{"log":"\\ud800\\n","time":"t"', b"a stdout F"]
    found = Unframer(FramingState(framing)).feed([*strange, framed.rstrip(b"\n")])
    assert found.messages == [*strange, b"b"]
    assert (found.misframed, found.too_long) == (3, 0)


def test_plain_lines_are_never_unframed() -> None:
    """With `plain`, also a line that looks like CRI stays as it is."""
    text = cri(b"F", b"x").rstrip(b"\n")
    assert unframed(FramingState(Framing.PLAIN), text) == [text]


@pytest.mark.parametrize("framing", [Framing.CRI, Framing.DOCKER])
def test_a_message_whose_parts_are_too_long_together_is_dropped(
    framing: Framing,
) -> None:
    """It is counted once at its end, holds no memory, and harms no other message."""
    unframer = Unframer(FramingState(framing), max_message_bytes=100)
    is_cri = framing is Framing.CRI
    part = cri(b"P", b"x" * 40) if is_cri else docker("x" * 40)
    last = cri(b"F", b"y") if is_cri else docker("y\n")
    for count in (1, 2, 3, 50):
        parts = unframer.feed([part.rstrip(b"\n")] * count)
        assert (parts.messages, parts.too_long) == ([], 0)
        held = sum(len(kept.data) for kept in unframer.state.parts.values())
        assert held <= 100
        end = unframer.feed([last.rstrip(b"\n")])
        fits = count <= 2
        assert end.messages == ([b"x" * 40 * count + b"y"] if fits else [])
        assert end.too_long == (not fits)
    assert unframer.state.parts == {}


def test_flush_returns_what_has_no_end() -> None:
    """The parts of both streams come out once; a message too long only counts."""
    unframer = Unframer(FramingState(Framing.CRI), max_message_bytes=3)
    for out, error, messages, errors in (
        (b"ab", b"long", [b"ab"], []),
        (b"long", b"ab", [], [b"ab"]),
    ):
        data = cri(b"P", out) + cri(b"P", error, b"stderr")
        assert unframer.feed(data.splitlines()).messages == []
        found = unframer.flush()
        assert (found.messages, found.errors, found.too_long) == (messages, errors, 1)
        assert unframer.flush() == Unframed([])


@given(
    texts=st.lists(
        st.tuples(st.booleans(), st.text(st.characters(codec="utf-8"), max_size=9)),
        max_size=12,
    ),
    size=st.integers(1, 4),
    stops=st.sets(st.integers(0, 60)),
    framing=st.sampled_from([Framing.CRI, Framing.DOCKER]),
)
def test_messages_survive_any_cut_into_parts_and_any_restart(
    texts: list[tuple[bool, str]], size: int, stops: set[int], framing: Framing
) -> None:
    """What a runtime cuts into parts comes back whole, over stops in between."""
    framed: list[bytes] = []
    whole = [(error, text.replace("\n", " ")) for error, text in texts]
    for error, text in whole:
        stream = "stderr" if error else "stdout"
        pieces = [text[at : at + size] for at in range(0, len(text), size)] or [""]
        for index, piece in enumerate(pieces):
            last = index == len(pieces) - 1
            if framing is Framing.DOCKER:
                framed.append(docker(piece + "\n" * last, stream))
            else:
                tag = b"F" if last else b"P"
                framed.append(cri(tag, piece.encode(), stream.encode()))
    state = FramingState(framing)
    found: list[tuple[bool, bytes]] = []
    unframer = Unframer(state)
    for index, text_line in enumerate(framed):
        now = unframer.feed([text_line.removesuffix(b"\n")])
        found += [(False, text) for text in now.messages]
        found += [(True, text) for text in now.errors]
        if index in stops:
            encoded = msgspec.msgpack.encode(unframer.state)
            state = msgspec.msgpack.decode(encoded, type=FramingState)
            unframer = Unframer(state)
    assert found == [(error, text.encode()) for error, text in whole]


def halves(number: int, framing: str) -> tuple[bytes, bytes]:
    """Returns the numbered line in two parts."""
    text = line(number)
    if framing == "cri":
        return cri(b"P", text[:100]), cri(b"F", text[100:-1])
    return docker(text[:100].decode()), docker(text[100:].decode())


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("framing", ["cri", "docker"])
def test_a_message_in_two_files_is_joined(
    tmp_path: Path, framing: str, *, away: bool
) -> None:
    """A rotation between two parts, and a stop of the reader there, change nothing."""
    log = tmp_path / "0.log"
    append(log, b"".join(halves(1, framing)) + halves(2, framing)[0])
    reading = Reading(log, framing=framing)
    assert numbers(reading.poll()) == [1]
    if away:
        reading.stop()
    rotate(log)
    append(log, halves(2, framing)[1] + halves(3, framing)[0])
    rotate(log, compress_after=1)
    append(log, halves(3, framing)[1])
    if away:
        reading.resume()
    assert numbers(reading.poll()) == [2, 3]
    reading.now += 2 * GRACE
    assert reading.poll() == []
    assert (reading.total.misframed, reading.total.rotations, reading.lost) == (
        0,
        2,
        {},
    )


def test_a_last_part_without_its_end_comes_once_the_log_is_gone(tmp_path: Path) -> None:
    """A container that ends without a newline leaves a part; it comes after a grace."""
    log = tmp_path / "0.log"
    append(log, cri(b"F", b"whole") + cri(b"P", b"last ") + cri(b"P", b"words"))
    reading = Reading(log, framing="auto")
    assert reading.poll() == [b"whole"]
    reading.now += 10 * GRACE
    assert reading.poll() == []  # its writer may go on
    log.unlink()
    assert reading.poll() == []  # it may be rotated at this moment
    reading.now += GRACE
    assert reading.poll() == [b"last words"]
    assert reading.poll() == []
    assert reading.open_files == 0


def test_parts_survive_a_look_in_the_midst_of_a_rotation(tmp_path: Path) -> None:
    """For a moment the log has no live file; that does not end a message."""
    log = tmp_path / "0.log"
    log.touch()
    reading = Reading(log, framing="cri")
    append(log, cri(b"P", b"two "))
    assert reading.poll() == []
    reading.now += 10 * GRACE
    log.rename(tmp_path / "0.log.20261129-141048")
    assert reading.poll() == []
    append(log, cri(b"F", b"parts"))
    assert reading.poll() == [b"two parts"]


def test_lines_of_another_form_in_a_file_are_counted(tmp_path: Path) -> None:
    """The reader tells how many lines were not framed as the log is."""
    log = tmp_path / "0.log"
    append(log, b"not framed\n" + cri(b"F", b"framed"))
    reading = Reading(log, framing="cri")
    assert reading.poll() == [b"not framed", b"framed"]
    assert reading.total.misframed == 1
