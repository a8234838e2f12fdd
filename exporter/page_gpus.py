"""The status page's part on GPUs: whose they are, how busy, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.gpus.reading import BOARD_SIGNALS
from exporter.page_text import (
    Markup,
    absent,
    clock,
    count,
    join,
    left_out,
    name,
    pairs,
    percent,
    plural,
    seconds,
    size,
    table,
    tag,
    within,
)

Row = dict[str, Any]
OPEN_EXPORTERS = 2
MAX_DEVICES = 64  # of one exporter
SECTION_BYTES = 500_000
_RATIOS = (
    ("gpu_engine_active_ratio", "Engine"),
    ("gpu_dram_active_ratio", "DRAM"),
    ("gpu_tensor_active_ratio", "Tensor"),
    ("gpu_utilization_ratio", "NVML"),
)
_NAMES = {"dcgm": "dcgm-exporter", "amd": "AMD", "nvidia_smi": "nvidia_gpu_exporter"}
_WORTH_SAYING = 0.005  # of the time that clocks are held down


@dataclass(frozen=True, slots=True)
class Exporter:
    """A GPU exporter as the page sees it; *number* from 1."""

    number: int
    row: Row

    @property
    def anchor(self) -> str:
        """The id of its details."""
        return f"gpu-{self.number}"

    @property
    def note(self) -> str:
        """What is wrong with it in one line, "" when all is well."""
        row = self.row
        if row["reason"] and row["reason"] != "not scraped yet":
            return ": ".join(filter(None, (row["reason"], row["detail"])))
        if row["join"]["problem"]:
            return str(row["join"]["problem"])
        return next(iter(self._frozen), "")

    @property
    def _frozen(self) -> list[str]:
        """Why figures of GPUs that are ours are stale though the page came."""
        return [
            signal["reason"]
            for device in self.row["devices"]
            for signal in device["signals"].values()
            if device["ours"] and signal["state"] == "stale"
        ]

    @property
    def verdict(self) -> tuple[str, str | None, str]:
        """Glyph, colour and word of its condition."""
        row = self.row
        if row["last_success"] is None and row["reason"] == "not scraped yet":
            return "○", "soft", "not asked yet"
        if row["stale"]:
            return "■", "bad", "not read"
        if row["join"]["problem"]:
            return "▲", "warn", "own GPUs not known"
        if self._frozen:
            return "▲", "warn", "figures stand still"
        if row["reason"]:
            return "▲", "warn", "last page failed"
        return "●", None, "read"

    @property
    def troubled(self) -> bool:
        """Whether somebody should look at it."""
        return self.verdict[1] in ("bad", "warn")

    @property
    def shown(self) -> list[Row]:
        """The GPUs that are ours with their boards; all while those are not known."""
        devices: list[Row] = self.row["devices"]
        boards = {(d["uuid"], "") for d in devices if d["ours"]}
        return [
            d for d in devices if d["ours"] or (d["uuid"], d["gpu_instance"]) in boards
        ] or devices

    @property
    def number_of_gpus(self) -> int:
        """How many GPUs and MIG instances there are; boards with instances are none."""
        split = {d["uuid"] for d in self.row["devices"] if d["gpu_instance"]}
        return sum(
            bool(d["gpu_instance"]) or d["uuid"] not in split
            for d in self.row["devices"]
        )


def exporters_of(document: Row) -> list[Exporter]:
    """Returns the GPU exporters of a document, those that need attention first."""
    found = [Exporter(number, row) for number, row in enumerate(document["gpus"], 1)]
    return sorted(found, key=lambda exporter: (not exporter.troubled, exporter.number))


def condition(exporter: Exporter) -> Markup:
    """Returns an exporter's condition as glyph and word."""
    glyph, colour, word = exporter.verdict
    mark = tag("span", glyph, class_="glyph", aria_hidden="true")
    return tag("span", mark, word, class_=colour)


def section(exporters: Sequence[Exporter], at: float) -> Markup:
    """Returns the part of the page about GPUs, nothing without an exporter."""
    if not exporters:
        return Markup()
    few = len(exporters) <= OPEN_EXPORTERS

    def show(exporter: Exporter) -> Markup:
        return _details(exporter, at, opened=few or exporter.troubled)

    kept, missed = within(exporters, show, SECTION_BYTES)
    return tag(
        "section",
        tag("h2", "GPUs", id="gpus"),
        *kept,
        left_out(missed, "GPU exporter"),
        aria_labelledby="gpus",
    )


def _details(exporter: Exporter, at: float, *, opened: bool) -> Markup:
    row, shown = exporter.row, exporter.shown
    ours = sum(device["ours"] for device in row["devices"])
    said = [tag("strong", name(row["target"])), " ", condition(exporter)]
    if row["devices"]:
        said.append(f" · {plural(exporter.number_of_gpus, 'GPU')}, {count(ours)} ours")
    body = [pairs(_facts(exporter, at))]
    if shown:
        body.append(_table(shown))
        body.append(_missing(shown))
    return tag(
        "details",
        tag("summary", *said),
        tag("div", *body, id=exporter.anchor),
        class_="target",
        open="" if opened else None,
    )


def _facts(exporter: Exporter, at: float) -> list[tuple[str, str]]:
    row, known = exporter.row, exporter.row["join"]
    ours: Markup = join([known["how"]])
    if known["problem"]:
        ours = tag("span", known["problem"], class_="warn")
    elif known["caution"]:
        ours = join([ours, "; ", tag("span", known["caution"], class_="warn")])
    page = absent("no page was ever read")
    if row["last_success"] is not None:
        age = seconds(max(0.0, at - row["last_success"]))
        page = join([f"{age} ago, ", clock(row["last_success"])])
    facts: list[tuple[str, str]] = [
        ("Ours", ours),
        ("Address", name(row["url"]) if row["url"] else absent("a recording")),
        ("Exporter", _NAMES.get(row["exporter"]) or absent("no page was read yet")),
        ("Last page", page),
    ]
    if row["reason"]:
        error = ": ".join(filter(None, (row["reason"], row["detail"])))
        facts.append(("Last error", tag("bdi", error)))
    if row["damaged_lines"]:
        first = row["damaged_lines"][0]
        facts.append(("Damaged", f"line {first['line']}: {first['reason']}"))
    return facts


def _table(devices: Sequence[Row]) -> Markup:
    numeric = [label for _, label in _RATIOS]
    numeric += ["Power", "Memory", "Age"]
    kept = devices[:MAX_DEVICES]
    found = table(
        ["GPU", *numeric, "Held down by"],
        [_device(device) for device in kept],
        numeric=numeric,
        class_="overview stack",
        label="GPUs",
    )
    return join([found, left_out(len(devices) - len(kept), "GPU")])


def _device(device: Row) -> Markup:
    signals = device["signals"]
    cells = [
        ("Power", _of(signals, "gpu_power_watts", "gpu_power_limit_watts", _watts)),
        ("Memory", _of(signals, "gpu_memory_used_bytes", "gpu_memory_bytes", size)),
        ("Age", _value(signals["gpu_data_age_seconds"], seconds)),
    ]
    ratios = [(label, _value(signals[signal], percent)) for signal, label in _RATIOS]
    return tag(
        "tr",
        tag("th", *_title(device), scope="row", role="rowheader"),
        *(
            tag("td", shown, class_="n", role="cell", data_label=label)
            for label, shown in (*ratios, *cells)
        ),
        tag("td", _held_down(device["throttled"]), role="cell", data_label="Held down"),
        role="row",
    )


def _title(device: Row) -> list[str]:
    """Returns what a GPU is called: its number, model, and who has it."""
    number = device["gpu"] or device["uuid"]
    if device["gpu_instance"]:
        number += f" MIG {device['gpu_instance']}"
    said: list[str] = [tag("bdi", number, title=device["uuid"])]
    if device["model_name"]:
        said += [" ", name(device["model_name"])]
    pods = [f"{w['namespace']}/{w['pod']}" for w in device["workloads"]]
    if pods:
        said.append(tag("div", ", ".join(pods), class_="soft small"))
    return said


def _value(signal: Row, show: Callable[[float], str]) -> Markup:
    if signal["state"] in ("present", "proxy"):
        text = show(signal["value"])
        why = signal.get("reason")
        return tag("span", f"~{text}" if why else text, title=why)
    return absent(signal.get("reason", ""))


def _of(
    signals: Mapping[str, Row], part: str, whole: str, show: Callable[[float], str]
) -> Markup:
    """Returns a figure, and of how much it is where that is known."""
    shown = _value(signals[part], show)
    total = signals[whole]
    if total["state"] not in ("present", "proxy"):
        return shown
    return join([shown, " of ", _value(total, show)])


def _watts(value: float) -> str:
    return f"{count(value)} W"


def _held_down(shares: Mapping[str, Row]) -> Markup:
    """Returns why clocks are held down and for which share of the time."""
    known = {r: s for r, s in shares.items() if s["state"] in ("present", "proxy")}
    bounds = {r: s["bounds"] for r, s in shares.items() if s["state"] == "bounded"}
    said = [
        join([reason, " ", _value(share, percent)])
        for reason, share in known.items()
        if share["value"] > _WORTH_SAYING
    ]
    said += [
        join([f"{reason} {percent(low)} to {percent(high)}"])
        for reason, (low, high) in bounds.items()
        if high > _WORTH_SAYING
    ]
    if said:
        return join(said, ", ")
    if known or bounds:
        return join(["nothing"])
    return absent(next((s["reason"] for s in shares.values() if "reason" in s), ""))


def _missing(devices: Sequence[Row]) -> Markup:
    """Returns the signals that none of *devices* has, with the first one's reason."""
    lacking = [
        (signal, row["reason"])
        for signal, row in devices[0]["signals"].items()
        if all(d["signals"][signal]["state"] == "absent" for d in devices)
        and not (devices[0]["gpu_instance"] and signal in BOARD_SIGNALS)
    ]
    if not lacking:
        return Markup()
    rows = [
        tag(
            "tr",
            tag("th", signal, scope="row", role="rowheader"),
            tag("td", why, role="cell"),
            role="row",
        )
        for signal, why in lacking
    ]
    title = f"{plural(len(lacking), 'signal')} missing, and why"
    found = table(("Signal", "Why"), rows, class_="narrow")
    return tag("details", tag("summary", title), found)
