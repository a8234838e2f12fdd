"""Asks a server with Prometheus' HTTP API: Prometheus, Thanos, Mimir, VictoriaMetrics.

Ranges are asked for in chunks, so that neither the server's limit of points nor the
size of an answer is exceeded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec
import requests

MAX_POINTS = 1000  # a series in one answer; Prometheus refuses more than 11,000
MAX_BODY_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 120.0

Labels = tuple[tuple[str, str], ...]


class PrometheusError(RuntimeError):
    """A server that does not answer a query; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Range:
    """Moments from *start* to *end*, both included, every *step* seconds."""

    start: int
    end: int
    step: int

    def chunks(self, points: int = MAX_POINTS) -> Iterator[Range]:
        """Yields the range in parts of at most that many moments."""
        begin = self.start
        while begin <= self.end:
            end = min(self.end, begin + (points - 1) * self.step)
            yield Range(begin, end, self.step)
            begin = end + self.step


@dataclass(slots=True)
class Answer:
    """The values of each series by moment, and what the server warned of."""

    series: dict[Labels, dict[int, float]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Series] = []


class _Body(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None
    warnings: list[str] | None = None


_decode = msgspec.json.Decoder(_Body).decode


class Prometheus:
    """One server, given by the URL that its API's paths are appended to.

    For Mimir that ends in /prometheus, for a VictoriaMetrics cluster in
    /select/0/prometheus. *headers* are sent with every request: authorization, or the
    tenant of Mimir and Thanos (X-Scope-OrgID, THANOS-TENANT).
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        self._session.headers.update(headers or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def query_range(self, query: str, moments: Range) -> Answer:
        """Returns the values of *query* at *moments*. Raises PrometheusError."""
        answer = Answer()
        for chunk in moments.chunks():
            body = self._ask(
                {
                    "query": query,
                    "start": str(chunk.start),
                    "end": str(chunk.end),
                    "step": str(chunk.step),
                }
            )
            for found in body.data.result if body.data else ():
                labels = tuple(sorted(found.metric.items()))
                values = answer.series.setdefault(labels, {})
                values.update((round(at), float(value)) for at, value in found.values)
            answer.warnings += body.warnings or ()
        return answer

    def _ask(self, parameters: Mapping[str, str]) -> _Body:
        """Posts a query: long ones do not fit into an address."""
        try:
            with self._session.post(
                f"{self._url}/api/v1/query_range",
                data=dict(parameters),
                timeout=TIMEOUT_SECONDS,
                stream=True,
                allow_redirects=False,
            ) as answer:
                data = _bounded(answer)
        except requests.RequestException as error:
            raise PrometheusError(f"{self._url}: {_reason(error)}") from error
        try:
            body = _decode(data)
        except msgspec.DecodeError as error:
            if answer.status_code != requests.codes.ok:
                said = f"answers with status {answer.status_code}"
            else:
                said = f"does not speak Prometheus' API: {error}"
            raise PrometheusError(f"{self._url} {said}") from error
        if body.status != "success":
            said = body.error or f"status {answer.status_code}"
            raise PrometheusError(f"{self._url} refuses the query: {said}")
        return body


def _bounded(answer: requests.Response) -> bytes:
    """Returns the body; one beyond the limit raises RequestException."""
    data = bytearray()
    for part in answer.iter_content(CHUNK_BYTES):
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise requests.RequestException(
                f"the answer is longer than {MAX_BODY_BYTES >> 20} MiB; ask for fewer "
                "series with --match, or for a longer --step"
            )
    return bytes(data)


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached"
    return str(error)
