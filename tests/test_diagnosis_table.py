"""The table of causes and thresholds, the page, and the code say the same."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import analyzer.diagnosis
from analyzer.diagnosis import causes, thresholds
from analyzer.verdict import VERDICTS, Family

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
CODE = Path(analyzer.diagnosis.__file__).parent


def named_in_code() -> set[str]:
    """Returns the names of thresholds that the rules import."""
    found: set[str] = set()
    for path in CODE.glob("*.py"):
        if path.stem in ("causes", "thresholds"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "analyzer.diagnosis.thresholds"
            ):
                found.update(alias.name for alias in node.names)
    return found


def test_every_verdict_has_its_section_and_no_other_has() -> None:
    """All causes of all families, in the vocabulary's order."""
    listed = [(known.family, known.cause) for known in causes.TABLE]
    assert listed == [pair for pair in VERDICTS if pair[0] is not Family.UNKNOWN]
    for known in causes.TABLE:
        section = PAGE.partition(f"### {known.family} / {known.cause}\n")[2]
        section = section.partition("\n###")[0]
        for text in (known.mechanism, known.rule, known.refuted, known.knobs):
            assert text in section, (known.cause, text)
        assert known.verify in section


def test_every_threshold_is_on_the_page_with_its_value_and_reason() -> None:
    """One row each; what the code compares with is what is printed."""
    for known in thresholds.TABLE:
        row = f"| `{known.name}` | {known.value:g} | {known.unit} | {known.reason} "
        assert row in PAGE, known.name
        assert known.reason
        assert known.source


def test_every_threshold_is_used_and_each_name_once() -> None:
    """By a rule or the learning behind it: none is only documented."""
    values = {
        name: value
        for name, value in vars(thresholds).items()
        if isinstance(value, thresholds.Threshold)
    }
    assert set(values) == named_in_code()
    assert len({known.name for known in thresholds.TABLE}) == len(thresholds.TABLE)


def test_the_page_is_written_from_the_table() -> None:
    """As docs/generate.py would write it now."""
    script = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    assert script["diagnosis_page"]() == PAGE, "run docs/generate.py"
