"""A container's view without a container runtime: own root, read-only, another user."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import exporter

USER = 65532
# Where an unpacked image lies; without it the root is made of this machine's own files.
IMAGE = os.environ.get("GOODPUT_ROOTFS", "")
SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/usr")


def program(folder: Path, volumes: Mapping[str, Path], command: list[str]) -> list[str]:
    """Returns what runs *command* as the user 65532, in a read-only root.

    *folder* is where the root is put together; *volumes* are writable folders, by
    their path in there. The process stays the same, so signals reach the command.
    """
    root = folder / "root"
    root.mkdir()
    steps = ["set -eu", _bind(Path(IMAGE) if IMAGE else root, root)]
    if not IMAGE:
        for part in _parts():
            inside = Path(f"{root}{part}")
            inside.mkdir(parents=True, exist_ok=True)
            steps += [_bind(Path(part), inside), _read_only(inside)]
        for path in (*volumes, "/dev", "/proc", "/etc"):
            Path(f"{root}{path}").mkdir(parents=True, exist_ok=True)
        for name in ("hosts", "nsswitch.conf"):
            if (file := Path("/etc") / name).exists():
                shutil.copy(file, root / "etc")
    for path, outside in volumes.items():
        os.chown(outside, USER, USER)
        steps.append(_bind(outside, Path(f"{root}{path}")))
    steps += [
        f"mount --rbind /dev {_q(root / 'dev')}",
        f"mount --rbind /proc {_q(root / 'proc')}",
        _read_only(root),
        f"exec chroot --userspec={USER}:{USER} --groups= {_q(root)} "
        + shlex.join(command),
    ]
    script = "\n".join(steps) + ' "$@"'
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh"]


def _parts() -> list[str]:
    """Returns the folders that the programs of this machine need, none in another."""
    package = Path(exporter.__file__).parents[1]
    wanted = {*SYSTEM, sys.prefix, sys.base_prefix, str(package)}
    return sorted(
        part
        for part in wanted
        if Path(part).is_dir()
        and not any(str(above) in wanted for above in Path(part).parents)
    )


def need() -> None:
    """Skips the test, or fails it with CI=true, where no root can be made."""
    done = subprocess.run(
        ["unshare", "--mount", "mount", "--bind", "/usr", "/usr"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and os.environ.get("CI") == "true":
        pytest.fail(done.stderr)
    if done.returncode:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")


def _q(path: Path) -> str:
    return shlex.quote(str(path))


def _bind(outside: Path, inside: Path) -> str:
    return f"mount --bind {_q(outside)} {_q(inside)}"


def _read_only(path: Path) -> str:
    return f"mount -o remount,bind,ro {_q(path)}"
