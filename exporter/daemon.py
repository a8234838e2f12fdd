"""Starts and stops the exporter: storage, sampling, HTTP and signals."""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Self

from analyzer.config import Config, load_config
from exporter.demo import Demo, DemoError, DemoOptions
from exporter.file_watch import Watch
from exporter.service import Exporter, Options
from exporter.state import StorageError, Store
from exporter.web import App, Handlers, WebError, WebServer

logger = logging.getLogger(__name__)

ENDING_OR_RELOADING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StartError(Exception):
    """The exporter cannot start; the text is for the user."""


def run(
    *,
    config_file: Path | None,
    demo: DemoOptions | None,
    listen_address: str,
    telemetry_path: str,
    web_config: Path | None,
    lifecycle: bool,
    storage_path: Path | None,
    reload_seconds: float,
    version: str,
) -> None:
    """Serves *config_file* or a *demo* until SIGTERM or SIGINT; SIGHUP reloads.

    Every *reload_seconds*, unless 0, a configuration that changed is reloaded too.
    Raises ConfigError for a bad configuration, StartError for anything else that
    keeps it from starting.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(_Signals())
        site = None if demo is None else _start(demo, stack)
        load = _loader(config_file, site)
        watch = _watch(config_file)  # before it is read
        store = _open_store(storage_path)
        server: WebServer | None = None
        exporter = Exporter(
            Options(load, version, telemetry_path),
            store,
            lambda: server.config_error if server else "",
        )
        stack.callback(exporter.close)
        server = _open_server(
            _handlers(exporter, site, lifecycle=lifecycle),
            listen_address,
            telemetry_path,
            web_config,
        )
        stack.callback(server.close)
        exporter.start()
        if site is not None:
            site.begin()
        server.start()
        logger.info("listening url=%s", server.url)
        while (number := signals.next(reload_seconds)) in (None, signal.SIGHUP):
            if number is None and not watch.changed():
                continue
            watch = _watch(config_file)
            exporter.reload()
        logger.info("stopping")


class _Signals:
    """The signals that end or reload us, one by one, to be waited for.

    The interpreter writes each to a pipe at once. A handler of ours would run at the
    next bytecode, which does not come when a wait has just begun.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        # When the pipe is full there are enough to wake up for.
        self._before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in ENDING_OR_RELOADING:
            signal.signal(number, _leave_to_the_pipe)
        return self

    def next(self, seconds: float) -> int | None:
        """Returns the next signal's number; None when *seconds*, unless 0, pass."""
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        if not poll.poll(seconds * 1000 or None):
            return None
        return os.read(self._reading, 1)[0]

    def __exit__(self, *_: object) -> None:
        for number in ENDING_OR_RELOADING:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(self._before)
        os.close(self._reading)
        os.close(self._writing)


def _leave_to_the_pipe(_number: int, _frame: FrameType | None) -> None:
    """Keeps a signal from ending the process."""


def _start(demo: DemoOptions, stack: ExitStack) -> Demo:
    """Starts the simulated site, which ends with *stack*."""
    try:
        site = Demo(demo)
    except DemoError as error:
        raise StartError(str(error)) from error
    stack.callback(site.close)
    return site


def _loader(config_file: Path | None, site: Demo | None) -> Callable[[], Config]:
    """Returns what reads the configuration: the file's, or the demonstration's."""
    if config_file is not None:
        return partial(load_config, config_file)
    if site is None:
        raise StartError("neither a configuration file nor a demonstration is given")
    return lambda: site.config


def _watch(path: Path | None) -> Watch:
    watch = Watch()
    if path is not None:
        watch.add(path)
    return watch


def _open_store(path: Path | None) -> Store | None:
    if path is None:
        logger.warning("no --storage.path: counters start at 0")
        return None
    try:
        return Store(path)
    except StorageError as error:
        raise StartError(str(error)) from error


def _handlers(exporter: Exporter, site: Demo | None, *, lifecycle: bool) -> Handlers:
    return Handlers(
        metrics=exporter.metrics,
        page=exporter.page,
        status=exporter.status,
        healthy=exporter.healthy,
        ready=exporter.ready,
        reload=exporter.reload if lifecycle else None,
        truth=None if site is None else site.truth,
    )


def _open_server(
    handlers: Handlers,
    listen_address: str,
    telemetry_path: str,
    web_config: Path | None,
) -> WebServer:
    try:
        app = App(handlers, telemetry_path=telemetry_path)
        return WebServer(listen_address, app, web_config=web_config)
    except WebError as error:
        raise StartError(str(error)) from error
