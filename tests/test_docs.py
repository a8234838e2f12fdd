"""The documentation says what the code does."""

from __future__ import annotations

import re
import runpy
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from helm_chart import render

from analyzer.config import parse_config

ROOT = Path(__file__).parent.parent
FOLDERS = (".", "docs", "dashboards", "alerts", "deploy")
PAGES = tuple(page for f in FOLDERS for page in sorted((ROOT / f).glob("*.md")))
FENCE = re.compile(r"^```yaml\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class Snippet(NamedTuple):
    """One YAML example: the file that its first line names, and its text."""

    file: str
    text: str


def _snippets() -> Iterator[object]:
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            text = match["text"]
            name = text.partition("\n")[0].removeprefix("# ")
            snippet = Snippet(name, text)
            yield pytest.param(snippet, id=f"{page.name}-{name}")


@pytest.mark.parametrize("name", ["metrics", "commands", "gateways"])
def test_generated_pages_are_what_the_code_says(name: str) -> None:
    """Metrics follow from the catalogue, commands from the programs' --help."""
    script = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    committed = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert committed == script[f"{name}_page"](), "run docs/generate.py"


@pytest.mark.parametrize("name", ["presets", "capabilities", "gpu-signals"])
def test_tables_in_pages_are_what_the_code_says(name: str) -> None:
    """The tables of presets and signals follow from the code."""
    script = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    file, _ = script["TABLES"][name]
    committed = (ROOT / "docs" / file).read_text(encoding="utf-8")
    assert committed == script["with_table"](committed, name), "run docs/generate.py"


@pytest.mark.parametrize("snippet", list(_snippets()))
def test_yaml_examples_are_accepted_by_the_program_they_are_for(
    snippet: Snippet,
    need_tool: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A YAML example's first line names its file, and its reader accepts it."""
    for variable in ("NODE_NAME", "POD_NAMESPACE", "POD_NAME"):  # as a pod may have
        monkeypatch.setenv(variable, "a")
    if snippet.file == "goodput.yml":
        config = parse_config(snippet.text, snippet.file)
        assert config.engines or config.engine_groups or config.slo_classes
        return
    if snippet.file == "values.yaml":
        assert render(yaml.safe_load(snippet.text))
        return
    assert snippet.file == "prometheus.yml", "examples begin with `# FILE`"
    path = tmp_path / snippet.file
    content = yaml.safe_load(snippet.text)
    for job in content.get("scrape_configs", ()):
        job.pop("kubernetes_sd_configs", None)  # not known to Debian's promtool
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    done = subprocess.run(
        [need_tool("promtool"), "check", "config", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file of the repository."""
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / target).exists(), target
