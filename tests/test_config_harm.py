"""Files made to harm: refused, with little work and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from config_files import message_of

from analyzer.strict import MAX_BYTES

pytestmark = pytest.mark.usefixtures("config_environment")

MANY = MAX_BYTES // 2 - 20
UNKNOWN_KEY = (
    "unknown key (known: engine_histograms, engines, gateways, gpus, limits, "
    "slo_classes)"
)
SHOWN = "[['a'], [" + "['a'], " * 10
BOMBS = {
    "brackets": ("[" * MAX_BYTES, "line 1: nested more than 20 levels deep"),
    "braces": ("{a: " * (MAX_BYTES // 4), "line 1: nested more than 20 levels deep"),
    "dashes": ("- " * MANY, "line 1: nested more than 20 levels deep"),
    "keys in keys": ("? " * MANY, "line 1: nested more than 20 levels deep"),
    "values": ("[" + "1," * MANY + "]", "line 1: more than 50000 values in the file"),
    "keys": (
        "".join(f"k{n}: v\n" for n in range(30_000)),
        "line 25000: more than 50000 values in the file",
    ),
    "aliases": (
        "limits: &a 1\nengines: [" + "*a," * (MAX_BYTES // 3 - 20) + "]",
        "line 2: more than 50000 values in the file",
    ),
    "digits": (
        "limits: {models: " + "9" * MANY + "}",
        f"line 1: a number of {MANY} digits; text needs quotes",
    ),
    "base 60": (
        "limits: {models: 1" + ":1" * (MANY // 2) + "}",
        f"line 1: a number of {2 * (MANY // 2) + 1} digits; text needs quotes",
    ),
    "hexadecimal": (
        "limits: {models: 0x" + "f" * MANY + "}",
        f"line 1: a number of {MANY + 2} digits; text needs quotes",
    ),
    "escapes": (
        'limits: "' + "\\x41" * (MANY // 2) + '"',
        "limits: must be a mapping, got '" + "A" * 59 + "…",
    ),
    "alias expansion": (
        "x0: &x0 [a]\n"
        + "".join(
            f"x{n}: &x{n} [" + ", ".join([f"*x{n - 1}"] * 10) + "]\n"
            for n in range(1, 10)
        )
        + "limits: *x9\n",
        f"x0: {UNKNOWN_KEY}",
    ),
    "shown alias expansion": (
        "limits: [&x0 [a], "
        + ", ".join(
            f"&x{n} [" + ", ".join([f"*x{n - 1}"] * 10) + "]" for n in range(1, 10)
        )
        + "]\n",
        f"limits: must be a mapping, got {SHOWN[:60]}…",
    ),
    "merge expansion": (
        "a0: &a0 {k: v}\n"
        + "".join(
            f"a{n}: &a{n} {{<<: [" + ", ".join([f"*a{n - 1}"] * 10) + "]}\n"
            for n in range(1, 10)
        ),
        "line 2: merge keys (<<) are not supported",
    ),
    "itself": ("limits: &a [*a]", "limits: must be a mapping, got [[[[...]]]]"),
    "long key": (
        f"{'k' * 1000}: 1",
        f"'{'k' * 59}…: {UNKNOWN_KEY}",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_made_to_harm_is_refused(name: str, tmp_path: Path) -> None:
    """Deep, wide, long and self-referring documents give a short exact message."""
    text, expected = BOMBS[name]
    assert len(text) <= MAX_BYTES
    assert message_of(text, tmp_path) == expected


@pytest.mark.slow
def test_harmful_files_take_little_memory(tmp_path: Path) -> None:
    """Each is refused within 64 MiB on top of the interpreter, in a process."""
    for number, (text, _) in enumerate(BOMBS.values()):
        (tmp_path / f"{number}.yml").write_text(text)
    program = (
        "import pathlib, resource, sys\n"
        "from analyzer.config import load_config\n"
        "from analyzer.strict import ConfigError\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.yml')):\n"
        "    try:\n"
        "        load_config(path)\n"
        "    except ConfigError:\n"
        "        continue\n"
        "    sys.exit(f'{path} was loaded')\n"
        "print((used() - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64
