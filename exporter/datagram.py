"""Request records from a unix datagram socket: what our middleware sends."""

from __future__ import annotations

from pathlib import Path

from analyzer.sources.datagrams import bind_unix, remove_unix
from exporter.receiver import Receiver
from exporter.tail_batch import BATCH_BYTES, Batch


class DatagramSource:
    """Binds a unix datagram socket at *path* and reads what is sent to it.

    A socket left behind by a killed process is replaced; another kind of file is
    not. Raises SourceError when it cannot be bound.
    """

    def __init__(self, path: str) -> None:
        sock = bind_unix(path)
        self._path = path
        self._inode = Path(path).lstat().st_ino
        self._receiver = Receiver(sock)

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the records that have come."""
        return self._receiver.poll(limit_bytes)

    def close(self) -> None:
        """Closes the socket and takes its file away, unless another took its place."""
        self._receiver.close()
        remove_unix(self._path, self._inode)
