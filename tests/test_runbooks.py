"""Runbooks: there is one for every cause and alert, and their queries work."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from analyzer.catalogue import BY_NAME
from analyzer.diagnosis.causes import TABLE
from analyzer.rules.advice import FIRST
from analyzer.verdict import Family

ALERTS = Path(__file__).resolve().parents[1] / "alerts"
PAGES = sorted((ALERTS / "runbooks").glob("*.md"))
MOST_LINES = 50
GROUPS = yaml.safe_load((ALERTS / "goodput.rules.yml").read_text("utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]


def queries(page: Path) -> list[str]:
    """Returns the PromQL blocks of a runbook."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"```promql\n(.*?)\n```", text, re.DOTALL)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.cause)
def test_every_cause_has_a_runbook_and_what_binds_has_a_first_step(
    row: object,
) -> None:
    """The page links to one, and says the other."""
    assert isinstance(row, type(TABLE[0]))
    assert (ALERTS / "runbooks" / f"{row.cause}.md").is_file()
    assert (row.cause in FIRST) == (row.family is not Family.NONE)


def test_every_link_of_an_alert_leads_to_a_runbook() -> None:
    """Links whose page a template chooses lead to that of the cause, or of none."""
    known = {page.stem for page in PAGES}
    for rule in RULES:
        if "alert" not in rule:
            continue
        links = re.findall(r"/runbooks/(.+?)\.md", rule["annotations"]["runbook_url"])
        assert links, rule["alert"]
        for name in links:
            assert name in known or "cause" in name, rule["alert"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_runbook_is_short_and_says_what_to_do(page: Path) -> None:
    """Meaning, how to confirm, what to change in which order, how to verify."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^\*\*([A-Z][a-z ,]+)\.\*\*", text, re.MULTILINE)
    wanted = ["Means", "Confirm", "Change, in this order", "Verify"]
    assert found[:4] == wanted
    assert found[4:] in ([], ["A replica instead"])
    assert "\n1. " in text
    assert len(text.splitlines()) <= MOST_LINES
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (page.parent / link).is_file()


def test_the_queries_of_runbooks_are_valid_and_on_series_that_exist(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """At three in the morning a query must not be a riddle."""
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    rules = []
    for page in PAGES:
        for number, query in enumerate(queries(page)):
            rules.append({"record": f"runbook:{page.stem}:q{number}", "expr": query})
            for name in re.findall(r"\b[a-z_]*:?goodput_[a-z0-9_:]*\b", query):
                base = re.sub(r"_(bucket|count|sum)$", "", name)
                known = name in recorded or name in BY_NAME or base in BY_NAME
                assert known or "=~" in query, f"{page.stem}: {name}"
    assert len(rules) > len(PAGES)
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "runbooks", "rules": rules}]}))
    done = subprocess.run(
        [need_tool("promtool"), "check", "rules", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
