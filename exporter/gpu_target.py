"""One GPU exporter under watch: its flow, its connection, and one scrape at a time."""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager

from analyzer.config_gpus import GpuSource
from analyzer.gpus.flow import GpuFlow
from analyzer.sources.scrape import Fetcher, ScrapeError
from exporter.flight import Flight

logger = logging.getLogger(__name__)


class GpuTarget:
    """Samples one GPU exporter; `lock` guards the flow against readers."""

    def __init__(self, flow: GpuFlow, lock: AbstractContextManager[object]) -> None:
        self.flow = flow
        self.retired_at: float | None = None
        self._lock = lock
        self._flight = Flight()
        self._sampled = False
        # One pair, so that no credentials go to another source's address.
        self._way = flow.source, Fetcher.of(flow.source)
        self._logged = ""
        self._logged_join = ""

    @property
    def key(self) -> str:
        """What its timer is called; engines have no blank in their names."""
        return f"gpu {self.flow.source.name}"

    @property
    def interval(self) -> float:
        """The seconds between two samples."""
        return self.flow.source.interval

    def retire(self, at: float) -> None:
        """Lets go of the connection at *at* (Unix seconds)."""
        self.retired_at = at
        self.close()

    def configure(self, source: GpuSource) -> None:
        """Takes over a reloaded configuration."""
        changed = source != self.flow.source or self.retired_at is not None
        self.retired_at = None
        with self._lock:
            self.flow.configure(source)
        if changed:
            (_, fetcher), self._way = self._way, (source, Fetcher.of(source))
            self._sampled = False  # of another address, perhaps
            fetcher.close()

    def fresh(self) -> bool:
        """Whether a scrape of ours need not wait: once there was a first sample.

        The exporter's figures are a cache: what the timer does is enough.
        """
        return self._sampled

    def sample(self, *, tick: bool) -> None:  # noqa: ARG002 - engines tell them apart
        """Scrapes once and records it; waits instead when a scrape is in flight."""
        self._flight.run(self._sample, patience=self.flow.source.timeout + 1.0)

    def _sample(self) -> None:
        source, fetcher = self._way
        at, begun = time.time(), time.monotonic()
        try:
            got = fetcher.get(source.url, timeout=source.timeout)
        except ScrapeError as error:
            with self._lock:
                if self.flow.source.url != source.url:
                    return  # it moved meanwhile, and this tells nothing of it
                spent = time.monotonic() - begun
                self.flow.fail(error.reason, at, seconds=spent, detail=error.detail)
                self._sampled = True
            self._log(f"{error.reason}: {error.detail}")
            return
        # A large page takes long, and everybody else waits for the lock.
        page = self.flow.read(got.text, at)
        with self._lock:
            if self.flow.source.url != source.url:
                return
            self.flow.observe(page, seconds=got.seconds)
            self._sampled = True
            attempt = self.flow.attempt
            # Without a match, each engine has its own GPUs.
            problem = self.flow.join(at).problem if source.match.selects else ""
        if attempt is not None and attempt.reason:
            self._log(f"{attempt.reason}: {attempt.detail}")
            return
        self._log("")
        self._log_join(problem)

    def _log(self, failure: str) -> None:
        """Logs the begin and the end of a failure, not each repetition."""
        reason = failure.partition(":")[0]
        if reason == self._logged:
            return
        name = self.flow.source.name
        if reason:
            logger.warning("scrape failed gpu=%s error=%r", name, failure)
        else:
            logger.info("scrape works again gpu=%s", name)
        self._logged = reason

    def _log_join(self, problem: str) -> None:
        """Logs that our GPUs cannot be told, and that they can again."""
        if problem == self._logged_join:
            return
        name = self.flow.source.name
        if problem:
            logger.warning("own GPUs not found gpu=%s why=%r", name, problem)
        else:
            logger.info("own GPUs found again gpu=%s", name)
        self._logged_join = problem

    def close(self) -> None:
        """Closes the connection."""
        _, fetcher = self._way
        fetcher.close()
