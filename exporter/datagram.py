"""Request records from a unix datagram socket: what our middleware sends."""

from __future__ import annotations

import contextlib
import errno
import socket
import stat
from pathlib import Path

from exporter.receiver import Receiver
from exporter.tail_batch import BATCH_BYTES, Batch

# Any user of the pod may send: the engine may run as another one.
SOCKET_MODE = 0o666


class SourceError(Exception):
    """A socket that cannot be opened; the text names its address."""


class DatagramSource:
    """Binds a unix datagram socket at *path* and reads what is sent to it.

    A socket left behind by a killed process is replaced; another kind of file is
    not. Raises SourceError when it cannot be bound.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _remove_socket(self._path)
            sock.bind(path)
            self._path.chmod(SOCKET_MODE)
        except OSError as error:
            sock.close()
            raise SourceError(f"{path}: {error.strerror or error}") from error
        self._inode = self._path.lstat().st_ino
        self._receiver = Receiver(sock)

    def poll(self, limit_bytes: int = BATCH_BYTES) -> Batch:
        """Returns the records that have come."""
        return self._receiver.poll(limit_bytes)

    def close(self) -> None:
        """Closes the socket and takes its file away, unless another took its place."""
        self._receiver.close()
        with contextlib.suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()


def _remove_socket(path: Path) -> None:
    """Takes away a socket that was left behind; raises OSError for another file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "is there and is not a socket")
    path.unlink()
