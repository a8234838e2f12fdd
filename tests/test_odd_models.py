"""Models with any name at all, on every page that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from exporter_pages import (
    CLASSES,
    OPENMETRICS,
    check_metrics,
    parse_openmetrics,
    parse_plain,
    scraped,
    source,
)
from prometheus_client import Metric as Family
from running_exporter import RunningExporter, wait_for
from synthetic_engine import MODEL, SyntheticEngine

ODD_MODELS = (
    'a "quoted" one',
    "a\\backslash\\n",
    "two\nlines",
    '{model_name="x"} 1 # EOF',
    "模型 – é\u2028\U0001f600",
    "\ttab and\x1b[31mescape",
    "<script>alert(1)</script>&amp;",
    "m" * 2000,
)


def models_by_target(families: Iterable[Family]) -> dict[str, set[str]]:
    """Returns the model labels of each target."""
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            if "model" in sample.labels and "target" in sample.labels:
                models = found.setdefault(sample.labels["target"], set())
                models.add(sample.labels["model"])
    return found


def test_a_model_of_any_name_is_printed_as_it_is(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    """Whatever an engine calls its model, both formats and the page stay whole."""
    expected = {f"e{number}": model for number, model in enumerate(ODD_MODELS)}
    classes = CLASSES.replace(MODEL, '"*"')
    with ExitStack() as stack:
        sources = "".join(
            source(name, stack.enter_context(SyntheticEngine(model=model)).url)
            for name, model in expected.items()
        )
        path = tmp_path / "c.yml"
        path.write_text(f"{classes}engines:\n{sources}", encoding="utf-8")
        exporter = stack.enter_context(RunningExporter(f"--config.file={path}"))
        up = "goodput_target_up"
        for name in expected:
            wait_for(partial(exporter.value, up, target=name))
        plain, openmetrics = scraped(exporter), scraped(exporter, OPENMETRICS)
        status = exporter.get("/api/v1/status").json()
        shown = exporter.get("/")
    check_metrics(need_tool("promtool"), plain)
    wanted = {name: {model} for name, model in expected.items()}
    assert models_by_target(parse_plain(plain.text)) == wanted
    assert models_by_target(parse_openmetrics(openmetrics.text)) == wanted
    assert {row["model"] for row in status["slo"]} == set(ODD_MODELS)
    assert shown.status_code == 200
    assert "<script>alert" not in shown.text
