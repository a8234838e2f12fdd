"""A workload without its owners: when requests came, how long they were, what recurs.

No text, no name and no absolute time is kept. Values that too few requests share are
replaced by those of their neighbours, so that none stands out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzer.report.columns import Columns, Floats, Ints
from analyzer.report.report import Row
from analyzer.report.verdicts import EXCLUDED, EXCLUSIONS, Judge, Verdicts
from analyzer.slo import NO_CLASS

OTHER = "other"
KEPT_EXCLUSIONS = ("client_abort", "policy")  # who left, or was refused, did come
GROUP_HEX = 12
SEED_BYTES = 8


@dataclass(frozen=True, slots=True)
class Style:
    """How a tool wants its lines: milliseconds of a tick, tokens of a block."""

    name: str
    tick: int
    block_tokens: int
    command: str


STYLES = (
    Style(
        "vllm",
        1000,
        16,
        "vllm bench serve --dataset-name timed_trace --dataset-path {file} "
        "--timed-trace-chunk-hash-size {block} --num-prompts {count} --ignore-eos",
    ),
    Style(
        "aiperf",
        1,
        512,
        "aiperf profile --custom-dataset-type mooncake_trace --input-file {file} "
        "--fixed-schedule --prompt-input-tokens-block-size {block} "
        "--extra-inputs ignore_eos:true",
    ),
)


class Collector:
    """Takes judged requests; holds some numbers of each that came for an answer."""

    def __init__(self, judge: Judge, *, key: bytes, model: str = "") -> None:
        self._judge = judge
        self._key = key
        self._model = model
        self._names = [*(c.name for c in judge.classes), NO_CLASS]
        self._groups: dict[str, int] = {}
        self._parts: list[tuple[Floats, Floats, Floats, Floats, Ints, Ints]] = []
        self.undated = 0

    def add(self, columns: Columns, verdicts: Verdicts) -> None:
        """Adds the requests that asked for an answer of the model."""
        kinds = columns.kinds
        wanted = [
            not self._model or self._judge.served(k.model) == self._model for k in kinds
        ]
        kept_codes = [EXCLUSIONS.index(name) for name in KEPT_EXCLUSIONS]
        came = (verdicts.code != EXCLUDED) | np.isin(verdicts.excluded, kept_codes)
        came &= np.array(wanted, dtype=np.bool_)[columns.kind]
        dated = ~np.isnan(columns.start)
        self.undated += int((came & ~dated).sum())
        rows = np.flatnonzero(came & dated)
        groups = [
            self._groups.setdefault(self._hidden(k.tenant), len(self._groups))
            for k in kinds
        ]
        self._parts.append(
            (
                columns.start[rows],
                columns.prompt[rows],
                columns.output[rows],
                columns.cached[rows],
                verdicts.slo_class[rows],
                np.array(groups, dtype=np.int64)[columns.kind[rows]],
            )
        )

    def _hidden(self, tenant: str) -> str:
        """Returns a name that tells nothing without the key."""
        found = blake2b(tenant.encode("utf-8", "replace"), key=self._key)
        return found.hexdigest()[:GROUP_HEX]

    def workload(self, *, k: int) -> Workload:
        """Returns the anonymised workload, in which *k* requests share every value."""
        columns = [np.concatenate(part) for part in zip(*self._parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        start, prompt, output, cached, number, group = (c[order] for c in columns)
        seed = blake2b(b"lengths", key=self._key, digest_size=SEED_BYTES).digest()
        rng = random.Random(seed)  # noqa: S311  lengths of requests that had none
        unknown = np.isnan(prompt) | np.isnan(output)
        prompt, output = _imputed(prompt, output, number, rng)
        names = [*self._names, OTHER]
        classes = shared(number, k, len(names) - 1)
        labels = [*self._groups, OTHER]
        return Workload(
            arrivals=start - start[0] if len(start) else start,
            prompt=rounded(prompt, k),
            output=rounded(output, k),
            cached=rounded(np.nan_to_num(cached), k),
            classes=tuple(names[i] for i in classes.tolist()),
            groups=tuple(labels[i] for i in shared(group, k, len(labels) - 1).tolist()),
            imputed=int(unknown.sum()),
            undated=self.undated,
            sharing_known=bool((~np.isnan(cached)).any()),
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """Anonymised requests by arrival (seconds since the first one).

    `cached` are the prompt tokens that the server knew already; `imputed` requests
    had no lengths and got those of others of their class.
    """

    arrivals: Floats
    prompt: Ints
    output: Ints
    cached: Ints
    classes: tuple[str, ...]
    groups: tuple[str, ...]
    imputed: int
    undated: int
    sharing_known: bool

    def __len__(self) -> int:
        return len(self.arrivals)

    def lines(self, style: Style, block_tokens: int) -> Iterator[bytes]:
        """Yields a JSON line a request, as a tool wants it.

        The first blocks of a prompt, as many as were cached, are those of its group;
        every other block is new.
        """
        encode = msgspec.json.Encoder().encode
        common: dict[str, list[int]] = {}
        used = 0
        for i in range(len(self)):
            blocks = -(-int(self.prompt[i]) // block_tokens)
            known = min(int(self.cached[i]) // block_tokens, blocks)
            prefix = common.setdefault(self.groups[i], [])
            while len(prefix) < known:
                prefix.append(used)
                used += 1
            ids = [*prefix[:known], *range(used, used + blocks - known)]
            used += blocks - known
            milliseconds = round(float(self.arrivals[i]) * 1e3)
            row: Row = {
                "timestamp": milliseconds
                if style.tick == 1
                else milliseconds / style.tick,
                "input_length": int(self.prompt[i]),
                "output_length": int(self.output[i]),
                "hash_ids": ids,
                "class": self.classes[i],
                "group": self.groups[i],
            }
            yield encode(row) + b"\n"

    def shape(self) -> Row:
        """Returns what is to be known of it in figures."""
        seconds = float(self.arrivals[-1]) if len(self) else 0.0
        return {
            "requests": len(self),
            "seconds": seconds,
            "requests_per_second": len(self) / seconds if seconds else None,
            "prompt_tokens": _shape_of(self.prompt),
            "output_tokens": _shape_of(self.output),
            "cached_share": float(self.cached.sum() / self.prompt.sum())
            if self.sharing_known and self.prompt.sum()
            else None,
            "classes": len(set(self.classes)),
            "groups": len(set(self.groups)),
            "imputed": self.imputed,
            "undated": self.undated,
        }


def _shape_of(values: Ints) -> Row:
    if not len(values):
        return dict.fromkeys(("mean", "p50", "p95", "max"))
    return {
        "mean": float(values.mean()),
        "p50": float(np.quantile(values, 0.5, method="inverted_cdf")),
        "p95": float(np.quantile(values, 0.95, method="inverted_cdf")),
        "max": float(values.max()),
    }


def _imputed(
    prompt: Floats, output: Floats, number: Ints, rng: random.Random
) -> tuple[Floats, Floats]:
    """Returns lengths for all: who has none gets both of another of its class."""
    known = ~np.isnan(prompt) & ~np.isnan(output)
    prompt, output = prompt.copy(), output.copy()
    for name in np.unique(number).tolist():
        donors = np.flatnonzero(known & (number == name))
        if not len(donors):
            donors = np.flatnonzero(known)
        lacking = np.flatnonzero(~known & (number == name))
        if not len(donors) or not len(lacking):
            continue
        chosen = donors[[rng.randrange(len(donors)) for _ in range(len(lacking))]]
        # What is known of it is kept.
        prompt[lacking] = np.where(
            np.isnan(prompt[lacking]), prompt[chosen], prompt[lacking]
        )
        output[lacking] = np.where(
            np.isnan(output[lacking]), output[chosen], output[lacking]
        )
    return np.nan_to_num(prompt, nan=1.0), np.nan_to_num(output, nan=1.0)


def shared(codes: Ints, k: int, other: int) -> Ints:
    """Returns *codes* with those that fewer than *k* requests have as *other*."""
    counts = np.bincount(codes, minlength=other + 1)
    return np.where(counts[codes] < k, other, codes)


def rounded(values: Floats, k: int) -> Ints:
    """Returns whole *values* of which at least *k* requests share each.

    Neighbours are joined until they are *k*, and take their mean: sums stay, and no
    value moves beyond its neighbours'. Fewer than *k* values are all the same.
    """
    if not len(values):
        return values.astype(np.int64)
    distinct, inverse, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    groups = _joined(counts.tolist(), k)
    sums = np.bincount(groups, weights=distinct * counts)
    means = np.rint(sums / np.bincount(groups, weights=counts)).astype(np.int64)
    found: NDArray[np.int64] = means[groups][inverse]
    return found


def _joined(counts: Sequence[int], k: int) -> Ints:
    """Returns the group of each of some neighbours; every group counts *k* or more."""
    groups, group, size = [], 0, 0
    for count in counts:
        groups.append(group)
        size += count
        if size >= k:
            group, size = group + 1, 0
    found = np.array(groups, dtype=np.int64)
    if size and group:
        found[found == group] = group - 1  # too few at the end join those before
    return found
