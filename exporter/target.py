"""One engine under watch: its flow, its connection, and one scrape at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from analyzer.config import Config
from analyzer.config_sources import EngineSource
from analyzer.engines.page import EnginePage
from analyzer.engines.served import served_models, sibling_url
from analyzer.flow import EngineFlow
from analyzer.snapshot import Reset
from analyzer.sources.scrape import Fetcher, ScrapeError
from exporter.flight import Flight

logger = logging.getLogger(__name__)

MODELS_EVERY_SECONDS = 300.0
FRESH_SECONDS = 1.0
LookAround = Callable[[EngineFlow, float], None]


class Target:
    """Samples one engine; `lock` guards the flow against readers.

    *look_around* tells its diagnosis what GPUs and gateways show at a time (Unix
    seconds); it is called under the lock.

    Concurrent calls of `sample` share one scrape: the first does it, the others
    wait for its end.
    """

    def __init__(
        self,
        flow: EngineFlow,
        lock: AbstractContextManager[object],
        look_around: LookAround,
    ) -> None:
        self.flow = flow
        self._look_around = look_around
        self.retired_at: float | None = None
        self._lock = lock
        self._flight = Flight()
        self._sampled_at: float | None = None  # monotonic
        self._models_at: float | None = None  # monotonic
        # One pair, so that no credentials go to another source's address.
        self._way = flow.source, Fetcher.of(flow.source)
        self._logged = ""
        self._damaged = False

    @property
    def name(self) -> str:
        """The target's name in the configuration."""
        return self.flow.source.name

    @property
    def key(self) -> str:
        """What its timer is called."""
        return self.name

    @property
    def interval(self) -> float:
        """The seconds between two samples."""
        return self.flow.source.interval

    def retire(self, at: float) -> None:
        """Lets go of the connection; `configure` takes the target into service again.

        *at* (Unix seconds) is when it went.
        """
        self.retired_at = at
        _, fetcher = self._way
        fetcher.close()

    def configure(self, source: EngineSource, config: Config, *, at: float) -> None:
        """Takes over a reloaded configuration."""
        changed = source != self.flow.source or self.retired_at is not None
        self.retired_at = None
        with self._lock:
            self.flow.configure(source, config, at=at)
        if changed:
            (_, fetcher), self._way = self._way, (source, Fetcher.of(source))
            self._models_at = None
            self._sampled_at = None  # of another address, perhaps
            fetcher.close()

    def fresh(self) -> bool:
        """Whether a sample began half an interval ago at most, and at most a second.

        One in flight is not: whoever scrapes waits for it.
        """
        if self._flight.flying:
            return False
        begun = self._sampled_at
        limit = min(self.flow.source.interval / 2, FRESH_SECONDS)
        return begun is not None and time.monotonic() - begun < limit

    def sample(self, *, tick: bool) -> None:
        """Scrapes once and records it; waits instead when a scrape is in flight."""
        job = partial(self._sample, tick=tick)
        self._flight.run(job, patience=self.flow.source.timeout + 1.0)

    def _sample(self, *, tick: bool) -> None:
        source, fetcher = self._way
        at = time.time()
        begun = self._sampled_at = time.monotonic()
        try:
            got = fetcher.get(source.url, timeout=source.timeout)
        except ScrapeError as error:
            with self._lock:
                if self.flow.source.url != source.url:
                    return  # it moved meanwhile, and this tells nothing of it
                self.flow.fail(
                    error.reason,
                    at,
                    seconds=time.monotonic() - begun,
                    detail=error.detail,
                )
            self._log(f"{error.reason}: {error.detail}")
            return
        # A large page takes long, and everybody else waits for the lock.
        page = self.flow.read(got.text, at)
        with self._lock:
            if self.flow.source.url != source.url:
                return
            self._look_around(self.flow, at)
            grown = self.flow.observe(page, seconds=got.seconds, tick=tick)
            attempt = self.flow.attempt
        if grown is None:
            self._log(f"{attempt.reason}: {attempt.detail}" if attempt else "")
            return
        self._log("")
        self._log_damage(page)
        if grown.reset is not Reset.NONE:
            logger.warning("counters reset target=%s reset=%s", self.name, grown.reset)
        self._learn_models(source, fetcher, anew=grown.reset is not Reset.NONE)

    def _learn_models(
        self, source: EngineSource, fetcher: Fetcher, *, anew: bool
    ) -> None:
        """Asks for the served names now and then; an engine may refuse to say."""
        now = time.monotonic()
        known = self._models_at
        if not anew and known is not None and now - known < MODELS_EVERY_SECONDS:
            return
        self._models_at = now
        url = sibling_url(source.url, "/v1/models")
        try:
            served = served_models(fetcher.get(url, timeout=source.timeout).body)
        except (ScrapeError, ValueError) as error:
            logger.debug("served models unknown target=%s error=%s", self.name, error)
            return
        with self._lock:
            if self.flow.source.url == source.url:
                self.flow.learn(served)

    def _log(self, failure: str) -> None:
        """Logs the begin and the end of a failure, not each repetition."""
        reason = failure.partition(":")[0]
        if reason == self._logged:
            return
        if reason:
            logger.warning("scrape failed target=%s error=%r", self.name, failure)
        else:
            logger.info("scrape works again target=%s", self.name)
        self._logged = reason

    def _log_damage(self, page: EnginePage) -> None:
        """Logs the first damaged page and the first whole one after it."""
        if bool(page.errors) == self._damaged:
            return
        self._damaged = bool(page.errors)
        if not page.errors:
            logger.info("page is whole again target=%s", self.name)
            return
        first = page.errors[0]
        logger.warning(
            "page is damaged target=%s lost_lines=%d first_line=%d error=%r",
            self.name,
            page.damaged_lines,
            first.line,
            first.reason,
        )

    def close(self) -> None:
        """Closes the connection."""
        _, fetcher = self._way
        fetcher.close()
