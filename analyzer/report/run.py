"""Reads logs to summaries: here, on several threads, or on a Dask cluster."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from analyzer.report.columns import Columns
from analyzer.report.decode import Decoder, Lines
from analyzer.report.json_table import Misread, Readers
from analyzer.report.summary import Summary
from analyzer.report.verdicts import Judge, Verdicts
from analyzer.slo import SloClass, matched_headers
from analyzer.sources.log_blocks import LogError, Piece, size_of

THREADS = 2  # a third one costs more memory than it saves time
AHEAD = 4  # pieces in work a thread or worker
RETRIES = 3
KEPT_BYTES = 16 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h

OnBytes = Callable[[int], None]
OnColumns = Callable[[Columns, Verdicts], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests are judged: the classes, other names of models, policy statuses."""

    classes: tuple[SloClass, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    policy_statuses: frozenset[int] = frozenset()

    def judge(self) -> Judge:
        """Returns a judge by these rules."""
        return Judge(
            self.classes, aliases=self.aliases, policy_statuses=self.policy_statuses
        )


@dataclass(slots=True)
class Part:
    """What a piece of a log came to; `error` says why its rest could not be read."""

    piece: Piece
    summary: Summary = field(default_factory=Summary)
    lines: Lines = field(default_factory=Lines)
    error: str = ""


def ignore_bytes(_: int) -> None:
    """Tells nobody how far reading has come."""


def summarise(
    piece: Piece,
    rules: Rules,
    *,
    on_bytes: OnBytes = ignore_bytes,
    on_columns: OnColumns | None = None,
    readers: Readers | None = None,
) -> Part:
    """Returns what a piece comes to.

    *on_bytes* is told how many more were read, *on_columns* sees every request.
    *readers* are used again for the next piece.
    """
    with _lent(readers) as lent:
        if on_columns is None:
            try:
                return _summarised(piece, rules, lent, on_bytes, ranges=True)
            except Misread:
                pass
        return _summarised(piece, rules, lent, on_bytes, on_columns, ranges=False)


@contextmanager
def _lent(readers: Readers | None) -> Iterator[Readers]:
    """Gives *readers*, or new ones, which are closed in the end."""
    if readers is not None:
        yield readers
        return
    with closing(Readers()) as own:
        yield own


def _summarised(
    piece: Piece,
    rules: Rules,
    readers: Readers,
    on_bytes: OnBytes,
    on_columns: OnColumns | None = None,
    *,
    ranges: bool,
) -> Part:
    part = Part(piece)
    judge = rules.judge()
    decoder = Decoder(
        piece.source,
        matched_headers(rules.classes),
        ids=on_columns is not None,
        readers=readers,
    )
    try:
        for found, size in decoder.read(piece, ranges=ranges):
            for columns in found:
                verdicts = judge.judge(columns)
                part.summary.add(columns, verdicts, judge)
                if on_columns is not None:
                    on_columns(columns, verdicts)
            on_bytes(size)
    except LogError as error:
        part.error = str(error)
    finally:
        decoder.close()
    part.lines = decoder.lines
    return part


def keep_freed_memory() -> None:
    """Lets glibc keep freed memory up to a size: each block needs the same again.

    Returning it to the kernel and faulting it in anew takes a tenth of the time. Does
    nothing with other C libraries.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def run_here(
    pieces: Sequence[Piece],
    rules: Rules,
    *,
    on_bytes: OnBytes = ignore_bytes,
    on_columns: OnColumns | None = None,
) -> Iterator[Part]:
    """Yields the part of each piece in order; single requests are shown in order."""
    keep_freed_memory()
    if on_columns is not None or len(pieces) < 2:
        for piece in pieces:
            yield summarise(piece, rules, on_bytes=on_bytes, on_columns=on_columns)
        return
    with closing(Readers()) as readers, ThreadPoolExecutor(THREADS) as pool:
        yield from _in_order(
            pieces,
            lambda piece: pool.submit(
                summarise, piece, rules, on_bytes=on_bytes, readers=readers
            ),
            THREADS + 1,
        )


def run_on_cluster(
    pieces: Sequence[Piece],
    rules: Rules,
    address: str,
    *,
    on_bytes: OnBytes = ignore_bytes,
) -> Iterator[Part]:
    """Yields the part of each piece in order, read by the workers of a Dask cluster.

    The workers see the files under the same paths. A piece whose worker dies is read
    by another one. Raises ClusterError.
    """
    # Only who has a cluster needs these.
    from distributed import Client  # noqa: PLC0415

    try:
        client = Client(address, timeout="10s", set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ClusterError(f"{address}: no Dask scheduler answers: {error}") from error
    with client:
        workers = len(client.scheduler_info()["workers"])
        if not workers:
            raise ClusterError(f"{address}: the scheduler has no worker")
        for part in _in_order(
            pieces,
            lambda piece: client.submit(
                summarise, piece, rules, pure=False, retries=RETRIES
            ),
            workers * AHEAD,
        ):
            on_bytes(size_of(part.piece))
            yield part


class ClusterError(RuntimeError):
    """A Dask cluster that cannot do the work; the text says why."""


def _in_order(
    pieces: Sequence[Piece], submit: Callable[[Piece], Future[Part] | Any], ahead: int
) -> Iterator[Part]:
    """Yields the parts of *pieces*, of which some are in work ahead of time."""
    waiting: deque[Future[Part] | Any] = deque()
    for piece in pieces:
        waiting.append(submit(piece))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
