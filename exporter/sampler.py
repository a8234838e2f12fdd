"""Samples every target on a timer, and once more when somebody scrapes us.

The timer (APScheduler) guarantees progress and sees peaks between scrapes; a scrape
gets figures of its own moment. Counters come out the same either way.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from typing import Protocol

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, JobEvent
from apscheduler.executors.pool import ThreadPoolExecutor as SchedulerPool
from apscheduler.schedulers.background import BackgroundScheduler

logger = logging.getLogger(__name__)

# Threads are made when they are needed; hanging targets hold one each.
MAX_TIMER_WORKERS = 256
MAX_SCRAPE_WORKERS = 64
HEALTHY_CYCLES = 5
HEALTHY_SECONDS = 30.0


class Sampled(Protocol):
    """What is sampled, on a timer and for scrapes."""

    @property
    def key(self) -> str:
        """Its name among all that are sampled."""

    @property
    def interval(self) -> float:
        """The seconds between two samples of the timer."""

    def fresh(self) -> bool:
        """Whether it need not be sampled for a scrape of ours."""

    def sample(self, *, tick: bool) -> None:
        """Samples it; *tick* says that the timer asked."""


class Sampler:
    """Runs the timers of all targets; `sample` refreshes what a scrape will show."""

    def __init__(self) -> None:
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler = BackgroundScheduler(
            executors={"default": SchedulerPool(MAX_TIMER_WORKERS)},
            job_defaults={
                "coalesce": True,
                "max_instances": 1,
                "misfire_grace_time": None,
            },
            timezone=UTC,
        )
        self._scheduler.add_listener(
            self._on_event, EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR
        )
        self._pool = ThreadPoolExecutor(MAX_SCRAPE_WORKERS, thread_name_prefix="scrape")
        self._intervals: dict[str, float] = {}
        self._ticked_at = time.monotonic()
        self.missed_cycles = 0

    def start(self) -> None:
        """Starts the timers."""
        self._ticked_at = time.monotonic()
        self._scheduler.start()

    def watch(self, target: Sampled) -> None:
        """Starts or renews the timer of *target*; targets are spread over time."""
        interval = target.interval
        if self._intervals.get(target.key) == interval:
            return
        share = zlib.crc32(target.key.encode()) / 2**32 if self._intervals else 0.0
        self._intervals[target.key] = interval
        self._scheduler.add_job(
            self._tick,
            "interval",
            seconds=interval,
            args=(target,),
            id=target.key,
            replace_existing=True,
            next_run_time=datetime.now(UTC) + timedelta(seconds=share * interval),
        )

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Does *work* on a timer of its own; a run that takes longer is not joined."""
        self._scheduler.add_job(work, "interval", seconds=seconds)

    def forget(self, key: str) -> None:
        """Stops the timer of a target."""
        if self._intervals.pop(key, None) is not None:
            self._scheduler.remove_job(key)

    def _tick(self, target: Sampled) -> None:
        target.sample(tick=True)
        self._ticked_at = time.monotonic()

    def _on_event(self, event: JobEvent) -> None:
        if event.code == EVENT_JOB_MAX_INSTANCES:
            self.missed_cycles += 1
        else:
            logger.error("sampling failed target=%s", event.job_id)
            if (error := getattr(event, "exception", None)) is not None:
                logger.error("sampling raised", exc_info=error)

    def sample(self, targets: Iterable[Sampled], *, seconds: float) -> None:
        """Samples the targets that are not fresh, for at most *seconds*.

        What has not come in by then is shown at its last state.
        """
        stale = [target for target in targets if not target.fresh()]
        if stale and seconds > 0:
            jobs = [self._pool.submit(t.sample, tick=False) for t in stale]
            done, late = wait(jobs, timeout=seconds)
            for job in late:
                job.cancel()
            for job in done:
                if (error := job.exception()) is not None:
                    logger.error("sampling raised", exc_info=error)

    def healthy(self) -> tuple[bool, str]:
        """Whether timers have run lately, and a sentence that says so."""
        if not self._intervals:
            return True, "no targets\n"
        still = time.monotonic() - self._ticked_at
        limit = max(HEALTHY_SECONDS, HEALTHY_CYCLES * max(self._intervals.values()))
        if still > limit:
            return False, f"no target was sampled for {still:.0f} s\n"
        return True, "healthy\n"

    def close(self) -> None:
        """Stops the timers; scrapes in flight are left to end by themselves."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        self._pool.shutdown(wait=False, cancel_futures=True)
