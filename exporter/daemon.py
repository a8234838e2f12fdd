"""Starts and stops the exporter: storage, sampling, HTTP and signals."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Self

from analyzer.config import Config, load_config
from exporter.demo import DemoEngine
from exporter.service import Exporter, Options, unread_sources
from exporter.state import StorageError, Store
from exporter.web import App, Handlers, WebError, WebServer

logger = logging.getLogger(__name__)


class StartError(Exception):
    """The exporter cannot start; the text is for the user."""


def run(
    *,
    config_file: Path | None,
    demo: str | None,
    listen_address: str,
    telemetry_path: str,
    web_config: Path | None,
    lifecycle: bool,
    storage_path: Path | None,
    version: str,
) -> None:
    """Serves *config_file* or a *demo* until SIGTERM or SIGINT; SIGHUP reloads.

    Raises ConfigError for a bad configuration, StartError for anything else that
    keeps it from starting.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(_Signals())
        load = _loader(config_file, demo, stack)
        store = _open_store(storage_path)
        server: WebServer | None = None
        exporter = Exporter(
            Options(load, version, telemetry_path),
            store,
            lambda: server.config_error if server else "",
        )
        stack.callback(exporter.close)
        server = _open_server(
            exporter, listen_address, telemetry_path, web_config, lifecycle=lifecycle
        )
        stack.callback(server.close)
        for source in unread_sources(exporter.config):
            logger.warning("this version does not read source=%r", source)
        exporter.start()
        server.start()
        logger.info("listening url=%s", server.url)
        while signals.next() == signal.SIGHUP:
            exporter.reload()
        logger.info("stopping")


class _Signals:
    """The signals that end or reload us, one by one, to be waited for.

    The handler only writes to a pipe: it may run at any moment, also within a lock.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        with suppress(BlockingIOError):  # there are enough to wake up for
            os.write(self._writing, bytes([number]))

    def next(self) -> int:
        """Waits for a signal and returns its number."""
        return os.read(self._reading, 1)[0]

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(self._reading)
        os.close(self._writing)


def _loader(
    config_file: Path | None, demo: str | None, stack: ExitStack
) -> Callable[[], Config]:
    """Returns what reads the configuration: the file's, or the demonstration's."""
    if config_file is not None:
        return partial(load_config, config_file)
    if demo is None:
        raise StartError("neither a configuration file nor a demonstration is given")
    engine = DemoEngine()
    stack.callback(engine.close)
    return lambda: engine.config


def _open_store(path: Path | None) -> Store | None:
    if path is None:
        logger.warning("no --storage.path: counters start at 0")
        return None
    try:
        return Store(path)
    except StorageError as error:
        raise StartError(str(error)) from error


def _open_server(
    exporter: Exporter,
    listen_address: str,
    telemetry_path: str,
    web_config: Path | None,
    *,
    lifecycle: bool,
) -> WebServer:
    handlers = Handlers(
        metrics=exporter.metrics,
        page=exporter.page,
        status=exporter.status,
        healthy=exporter.healthy,
        ready=exporter.ready,
        reload=exporter.reload if lifecycle else None,
    )
    try:
        app = App(handlers, telemetry_path=telemetry_path)
        return WebServer(listen_address, app, web_config=web_config)
    except WebError as error:
        raise StartError(str(error)) from error
