"""The exporter itself: targets, totals, and what every HTTP path answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from prometheus_client.exposition import choose_encoder

from analyzer.config import Config
from analyzer.document import document
from analyzer.engines.labels import COUNTED
from analyzer.flow import EngineFlow
from analyzer.hops import engine_hops
from analyzer.labels import LabelCap
from analyzer.strict import ConfigError
from exporter import page
from exporter.collector import Families, View, families
from exporter.engines import Engines
from exporter.gpus import Gpus
from exporter.request_log import POLL_SECONDS
from exporter.request_logs import RequestLogs, coverage
from exporter.sampler import Sampler
from exporter.state import State, StorageError, Store

logger = logging.getLogger(__name__)

RETIRED_SECONDS = 300.0  # Prometheus's staleness period
DEFAULT_SCRAPE_SECONDS = 9.5
STATUS_SECONDS = 300.0
LOG_SECONDS = 2.0  # for each log at a scrape; the rest is read by the timer
REFRESH_SECONDS = 5
STILL_QUERY = "refresh=0"
MEMORY_ONLY = "Counters are in memory only and start at 0: no --storage.path."


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line decides: *load* reads the configuration anew."""

    load: Callable[[], Config]
    version: str
    telemetry_path: str = "/metrics"
    retired_seconds: float = RETIRED_SECONDS


class Exporter:
    """Samples the configured engines and answers for them; has `close()`."""

    def __init__(
        self,
        options: Options,
        store: Store | None,
        web_config_error: Callable[[], str] = str,
    ) -> None:
        """Reads configuration and state. Raises ConfigError.

        *web_config_error* says why the file with certificates and users is not in
        use as it stands, "" when it is.
        """
        self._web_config_error = web_config_error
        self._options = options
        self._store = store
        self._config = options.load()
        self._started_at = self._loaded_at = time.time()
        self._reload_error = ""
        self._state_error = ""
        state = State()
        if store is not None:
            state, self._state_error = store.load()
            if self._state_error:
                logger.error("state not read error=%r", self._state_error)
        self._state_ok: bool | None = None if store is None else True
        self._process = state.process
        self._missed_before = 0
        self._lock = threading.RLock()  # guards flows and totals
        self._publishing = threading.Lock()  # writes follow each other in order
        self._cap = LabelCap(
            self._config.limits.models,
            _named_models(self._config),
            lock=threading.Lock(),  # pages are read outside the other one
        )
        self._sampler = Sampler()
        self._gpus = Gpus(self._lock, self._sampler, state.gpus)
        self._engines = Engines(
            self._lock,
            self._sampler,
            state.targets,
            admit=self._cap.admit,
            look_around=self._look_around,
            changed=self._drop_retired,
        )
        self._logs = RequestLogs(
            self._lock, self._cap, self._engines.aliases, state.logs
        )
        for name in ("state_write_failures", "sampler_missed_cycles"):
            self._process.add(f"goodput_{name}_total", (), 0.0)
        for label in ("model", *COUNTED):
            self._process.add("goodput_label_values_dropped_total", (label,), 0.0)
        self._apply(self._config)

    @property
    def config(self) -> Config:
        """The configuration in use."""
        return self._config

    def start(self) -> None:
        """Finds where the logs stand, then starts discovery and sampling."""
        self._poll_logs()
        self._engines.start()
        self._sampler.every(POLL_SECONDS, self._poll_logs)
        self._sampler.start()

    def _poll_logs(self) -> None:
        self._logs.poll(seconds=POLL_SECONDS)

    def _look_around(self, flow: EngineFlow, at: float) -> None:
        """Shows an engine's diagnosis what GPUs and gateways tell at *at*."""
        diagnosis = flow.diagnosis
        diagnosis.gpu = self._gpus.activity(flow.source, at)
        diagnosis.hops = engine_hops(
            flow, self._engines.flows(), self._logs.flows(), at
        )

    def _apply(self, config: Config) -> None:
        """Takes over *config*, and with it the targets that it names."""
        with self._lock:
            self._config = config
            self._cap.reserve(_named_models(config), config.limits.models)
            self._engines.apply(config)
            self._engines.expect_failures(self._process)
            self._logs.apply(config)
            self._gpus.apply(config, time.time())
        self._engines.discover()

    def reload(self) -> tuple[bool, str]:
        """Reads the configuration again; a bad one changes nothing."""
        try:
            config = self._options.load()
        except ConfigError as error:
            self._reload_error = str(error)
            logger.error(
                "reload failed, the old configuration stays error=%r", str(error)
            )
            return False, f"{error}\n"
        self._apply(config)
        self._reload_error = ""
        self._loaded_at = time.time()
        with self._lock:
            targets = len(self._engines.in_service())
        logger.info("configuration reloaded targets=%d", targets)
        return True, "reloaded\n"

    def metrics(self, deadline: float | None, accept: str) -> tuple[str, bytes]:
        """Returns the content type and the exposition, totals on disk before it."""
        limit = DEFAULT_SCRAPE_SECONDS if deadline is None else deadline
        with self._lock:
            engines, gpus = self._engines.in_service(), self._gpus.in_service()
        self._sampler.sample([*engines, *gpus], seconds=limit)
        self._logs.poll(seconds=LOG_SECONDS)
        with self._publishing:
            with self._lock:
                self._logs.expect(self._engines.flows())
                self._drop_retired()
                self._count_process()
                state = self._state()
                view = self._view()
                encoded = None if self._store is None else self._store.encode(state)
                collected = families(view)
            self._save(encoded)
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(Families(collected))

    def _state(self) -> State:
        return State(
            self._engines.memories(),
            self._logs.memories(),
            self._process,
            self._gpus.memories(),
        )

    def _save(self, encoded: bytes | None) -> None:
        """Writes the state; a failure is told, and the scrape goes out all the same."""
        if self._store is None or encoded is None:
            return
        try:
            self._store.save(encoded)
        except StorageError as error:
            if self._state_ok:
                logger.error("state not written error=%r", str(error))
            self._state_ok = False
            self._state_error = str(error)
            self._process.add("goodput_state_write_failures_total", (), 1.0)
            return
        if not self._state_ok:
            self._state_error = ""
        self._state_ok = True

    def _count_process(self) -> None:
        missed = self._sampler.missed_cycles
        grown = missed - self._missed_before
        self._missed_before = missed
        self._process.add("goodput_sampler_missed_cycles_total", (), float(grown))
        dropped = self._engines.take_dropped()
        dropped["model"] += self._cap.take_dropped()
        for label, times in dropped.items():
            name = "goodput_label_values_dropped_total"
            self._process.add(name, (label,), float(times))
        self._engines.count_failures(self._process)

    def _drop_retired(self) -> None:
        """Forgets what went a staleness period ago, and what never came back."""
        before = time.time() - self._options.retired_seconds
        unclaimed = self._started_at < before
        self._gpus.drop_retired(before, unclaimed=unclaimed)
        if self._engines.drop_retired(before, unclaimed=unclaimed):
            self._cap.retain(self._engines.models() | self._logs.models())

    def _view(self) -> View:
        now = time.time()
        flows = self._engines.flows()
        return View(
            at=now,
            config=self._config,
            flows=flows,
            retired=self._engines.retired(),
            process=self._process,
            reload_ok=not self._reload_error,
            loaded_at=self._loaded_at,
            state_ok=self._state_ok,
            version=self._options.version,
            logs=self._logs.views(),
            coverage=coverage(self._logs.all(), flows, now),
            discovered=self._engines.discovered(),
            gpus=self._gpus.views(now),
        )

    def status(self) -> bytes:
        """Returns the document of the last window as JSON."""
        with self._lock:
            view = self._view()
            found = document(
                view.flows,
                view.at,
                logs=self._logs.flows(),
                gpus=self._gpus.flows(),
                seconds=STATUS_SECONDS,
            )
        found["version"] = view.version
        found["at"] = view.at
        return msgspec.json.encode(found)

    def page(self, query: str = "") -> bytes:
        """Returns the status page; the query `refresh=0` keeps it as it is."""
        still = query == STILL_QUERY
        with self._lock:
            view = self._view()
            found = document(
                view.flows,
                view.at,
                logs=self._logs.flows(),
                gpus=self._gpus.flows(),
                seconds=STATUS_SECONDS,
                pictures=True,
            )
            logs = self._logs.states()
        note = self._state_error or (MEMORY_ONLY if self._store is None else "")
        return page.render(
            found,
            version=view.version,
            at=view.at,
            logs=logs,
            telemetry_path=self._options.telemetry_path,
            config_error=self._reload_error or self._web_config_error(),
            state_note=note,
            refresh_seconds=0 if still else REFRESH_SECONDS,
            switch_url="?" if still else f"?{STILL_QUERY}",
        )

    def healthy(self) -> tuple[bool, str]:
        """Whether our own sampler runs."""
        return self._sampler.healthy()

    def ready(self) -> tuple[bool, str]:
        """Whether we can serve; a dead target does not matter."""
        return True, "ready\n"

    def close(self) -> None:
        """Stops sampling and writes the totals."""
        self._engines.stop()
        self._sampler.close()
        with self._publishing:
            if self._store is not None:
                with self._lock:
                    self._count_process()
                    encoded = self._store.encode(self._state())
                self._save(encoded)
                self._store.close()
        with self._lock:
            self._engines.close()
            self._logs.close()
            self._gpus.close()


def _named_models(config: Config) -> set[str]:
    """Returns the models that the configuration names, without patterns."""
    named = {
        model
        for slo_class in config.slo_classes
        for model in slo_class.match.models
        if not any(c in model for c in "*?[")
    }
    groups = (group.template for group in config.engine_groups)
    for engine in (*config.engines, *groups):
        named.update(engine.aliases.values())
    return named
