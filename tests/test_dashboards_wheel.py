"""Dashboards come out of an installed wheel, without the library that built them."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAME = re.compile(r"[\w.-]+")


def needed(name: str, seen: set[str]) -> Iterator[Distribution]:
    """Yields what a package needs here, and what that needs, without extras."""
    for requirement in distribution(name).requires or ():
        wanted, _, marker = requirement.partition(";")
        found = NAME.match(wanted)
        assert found is not None
        if "extra" in marker or found[0].lower() in seen:
            continue
        seen.add(found[0].lower())
        try:
            yield distribution(found[0])
        except PackageNotFoundError:
            continue  # for another Python or system
        yield from needed(found[0], seen)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`goodput` from a wheel, in an environment with what it requires alone."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip"]
    quiet = ["--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "wheel", *quiet, "--no-build-isolation", "-w", str(directory), ROOT],
        check=True,
        cwd=directory,
    )
    (wheel,) = directory.glob("*.whl")
    made = directory / "venv"
    venv.create(made, with_pip=False)
    python = made / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(python), "install", *quiet, str(wheel)], check=True
    )
    (site,) = made.glob("lib/python3.*/site-packages")
    for package in needed("llm-goodput", set()):
        for entry in {file.parts[0] for file in package.files or ()} - {".."}:
            source = Path(str(package.locate_file(entry)))
            if source.name != "__pycache__" and not (site / entry).exists():
                (site / entry).symlink_to(source)
    without = subprocess.run(
        [python, "-c", "import grafana_foundation_sdk"],
        check=False,
        capture_output=True,
        cwd=directory,
    )
    assert without.returncode != 0, "the library is here"
    return made / "bin" / "goodput"


@pytest.mark.parametrize("form", ["json", "configmap"])
def test_a_wheel_writes_the_committed_dashboards(
    form: str, program: Path, tmp_path: Path
) -> None:
    """They are the files of the repository, to the letter."""
    done = subprocess.run(
        [program, "dashboards", "-o", "out", "--form", form],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    committed = {
        path.stem: path.read_text(encoding="utf-8")
        for path in (ROOT / "dashboards" / "json").glob("*.json")
    }
    written = {
        path.name.partition(".")[0]: path.read_text(encoding="utf-8")
        for path in (tmp_path / "out").iterdir()
    }
    assert written.keys() == committed.keys()
    for name, text in written.items():
        if form == "json":
            assert text == committed[name]
        else:
            held = text.partition(f"  {name}.json: |\n")[2].splitlines()
            assert [line[4:] for line in held] == committed[name].splitlines()
