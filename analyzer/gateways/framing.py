r"""Takes log lines out of what a container runtime or syslog wraps around them.

CRI (containerd, CRI-O): `time stream P|F text`, where P is a part and the message
ends with an F. Docker json-file: `{"log": "text\n", "stream": …, "time": …}`, where
a part has no newline at its end. Both cut messages at 16 KiB, and the parts of one
message may lie in two files after a rotation, so what is kept here outlives a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

MAX_MESSAGE_BYTES = 1 << 20
STDERR = "stderr"


class Framing(StrEnum):
    """What is around each line; the values are those of the configuration."""

    AUTO = "auto"  # plain until a line looks like one of the others
    PLAIN = "plain"
    CRI = "cri"
    DOCKER = "docker"


@dataclass(frozen=True, slots=True)
class Part:
    """The begin of a message whose end has not come; `too_long` ones hold no data."""

    data: bytes = b""
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class FramingState:
    """What an Unframer remembers between lines: its framing, and parts by stream."""

    framing: Framing = Framing.AUTO
    parts: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unframed:
    """The messages in some lines, those of the standard error apart in `errors`.

    `misframed` of them are lines of another form, passed on as they are; `too_long`
    messages were dropped.
    """

    messages: list[bytes]
    errors: list[bytes] = field(default_factory=list)
    misframed: int = 0
    too_long: int = 0


class Unframer:
    """Turns the lines of one log into messages. Lines come without their newline."""

    def __init__(
        self,
        state: FramingState | None = None,
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        state = state or FramingState()
        self._framing = state.framing
        self._parts = dict(state.parts)
        self._max = max_message_bytes

    @property
    def state(self) -> FramingState:
        """What to start another Unframer from, to go on where this one is."""
        return FramingState(self._framing, dict(self._parts))

    def feed(self, lines: Sequence[bytes]) -> Unframed:
        """Returns the messages that *lines* complete."""
        if self._framing is Framing.AUTO and lines:
            self._framing = recognise(lines[0])
        if self._framing in (Framing.AUTO, Framing.PLAIN):
            return Unframed(list(lines))
        read = read_cri if self._framing is Framing.CRI else read_docker
        messages: list[bytes] = []
        errors: list[bytes] = []
        misframed = too_long = 0
        for line in lines:
            found = read(line)
            if found is None:
                misframed += 1
                messages.append(line)
                continue
            stream, whole, text = found
            to = errors if stream == STDERR else messages
            if whole and not self._parts:
                to.append(text)
                continue
            message = self._join(stream, text, whole=whole)
            if whole:
                if message is None:
                    too_long += 1
                else:
                    to.append(message)
        return Unframed(messages, errors, misframed, too_long)

    def _join(self, stream: str, text: bytes, *, whole: bool) -> bytes | None:
        """Returns the message so far, None when it is too long; keeps it if partial."""
        part = self._parts.pop(stream, Part())
        if part.too_long or len(part.data) + len(text) > self._max:
            part = Part(too_long=True)
        else:
            part = Part(part.data + text)
        if not whole:
            self._parts[stream] = part
        return None if part.too_long else part.data

    def flush(self) -> Unframed:
        """Returns the messages whose end never came, once nothing more can come.

        A process that ends without a newline leaves such a last part.
        """
        parts = self._parts
        self._parts = {}
        whole = {stream: p.data for stream, p in parts.items() if not p.too_long}
        errors = [whole.pop(STDERR)] if STDERR in whole else []
        too_long = sum(part.too_long for part in parts.values())
        return Unframed(list(whole.values()), errors, too_long=too_long)


_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) "
    rb"(?:stdout|stderr) [PF](?::[^ ]*)?(?: |\Z)"
)
_STREAMS = {b"stdout": "stdout", b"stderr": STDERR}


class _DockerLine(msgspec.Struct):
    log: str
    time: str
    stream: str = ""


_decode_docker = msgspec.json.Decoder(_DockerLine).decode


def recognise(line: bytes) -> Framing:
    """Returns the framing of *line*, AUTO when nothing is seen around it."""
    if _CRI.match(line):
        return Framing.CRI
    if line.startswith(b'{"log":') and read_docker(line) is not None:
        return Framing.DOCKER
    return Framing.AUTO


def read_cri(line: bytes) -> tuple[str, bool, bytes] | None:
    """Returns stream, whether the message ends here, and text; None for other lines."""
    fields = line.split(b" ", 3)
    if len(fields) < 3 or b"T" not in fields[0]:
        return None
    stream = _STREAMS.get(fields[1])
    tag = fields[2].partition(b":")[0]
    if stream is None or tag not in (b"P", b"F"):
        return None
    return stream, tag == b"F", fields[3] if len(fields) == 4 else b""


def read_docker(line: bytes) -> tuple[str, bool, bytes] | None:
    """Returns stream, whether the message ends here, and text; None for other lines."""
    try:
        found = _decode_docker(line)
        text = found.log.encode()
    except (msgspec.MsgspecError, UnicodeError):
        return None
    whole = text.endswith(b"\n")
    return found.stream, whole, text[:-1] if whole else text


# The tag of RFC 3164 ends in a colon; a host, which may be missing, never does.
_TAG = rb"[\w./@-]+(?:\[[^\]\s]*\])?:(?=\s|\Z)"
_SYSLOG_3164 = re.compile(
    rb"<\d{1,3}>"
    rb"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    rb"|\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-][\d:]+)?)"
    rb"(?: [\w.:@%/-]*[\w.@%/-](?= (?:" + _TAG + rb"|\{)))?"
    rb"(?: " + _TAG + rb")? ?"
)
_SYSLOG_5424 = re.compile(
    rb"<\d{1,3}>\d{1,2} \S+ \S+ \S+ \S+ \S+ "
    rb'(?:-|(?:\[(?:[^\]"\\]|"(?:[^"\\]|\\.)*+"|\\.)*+\])+)(?: (?:\xef\xbb\xbf)?|\Z)',
    re.DOTALL,
)
_SYSLOG_PRIORITY = re.compile(rb"<\d{1,3}>")


def syslog_text(datagram: bytes) -> bytes:
    """Returns a syslog message without its header and without a newline at its end.

    Reads RFC 5424 and RFC 3164 as nginx, HAProxy and rsyslog send them (host and tag
    may be missing), and a bare priority. Anything else is returned as it is.
    """
    for header in (_SYSLOG_5424, _SYSLOG_3164, _SYSLOG_PRIORITY):
        found = header.match(datagram)
        if found:
            datagram = datagram[found.end() :]
            break
    return datagram.rstrip(b"\r\n\0")
