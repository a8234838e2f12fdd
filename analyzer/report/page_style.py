"""The style sheet of the report's page: light and dark, narrow, wide and on paper."""

from __future__ import annotations

# Text colours keep a contrast of at least 4.5 to the background (WCAG AA). Hues of
# verdicts and families stay apart for the colour blind by lightness as well.
LIGHT = (
    "--page:#fff;--ink:#1b2127;--soft:#57616b;--line:#dde1e5;--wash:#f4f6f8;"
    "--accent:#0a5fb4;--bad:#b3261e;--fine:#1a6b3c;--good:#4c93d6;--miss:#c8443b;"
    "--open:#c9ced4;--memory:#7b3fa0;--compute:#d9772b;--queueing:#c8443b;"
    "--communication:#0f7f86;--traffic:#b08b00;--gateway:#8a5a3c;--fault:#1b2127;"
    "--none:#cfe3f5;--unknown:#e3e6e9"
)
DARK = (
    "--page:#14181c;--ink:#e4e8ec;--soft:#9aa5b0;--line:#2e353c;--wash:#1b2127;"
    "--accent:#78b4f5;--bad:#ff8f85;--fine:#7fd3a0;--good:#3f7fc0;--miss:#e0675d;"
    "--open:#4a535c;--memory:#b98ae0;--compute:#e6944e;--queueing:#e0675d;"
    "--communication:#4fb8bf;--traffic:#d8b63a;--gateway:#b98a6a;--fault:#e4e8ec;"
    "--none:#23405c;--unknown:#2e353c"
)
_FILLS = "".join(
    f".f-{name}{{fill:var(--{name})}}"
    for name in (
        "memory",
        "compute",
        "queueing",
        "communication",
        "traffic",
        "gateway",
        "fault",
        "none",
        "unknown",
    )
)
STYLE = f"""
:root{{color-scheme:light dark;{LIGHT}}}
@media screen and (prefers-color-scheme:dark){{:root{{{DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--page);color:var(--ink);overflow-wrap:break-word;
font:1rem/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums}}
header,main{{max-width:66rem;margin:auto;padding:0 1.5rem}}
header{{padding-top:2rem}}
header p{{color:var(--soft);margin:0}}
main{{padding-bottom:4rem}}
h1{{font-size:1.5rem;line-height:1.3;font-weight:600;margin:0}}
h2{{font-size:1.125rem;font-weight:600;margin:2.5rem 0 .5rem;padding-top:.75rem;
border-top:1px solid var(--line)}}
h3{{font-size:1rem;font-weight:600;margin:1.25rem 0 .25rem}}
p{{margin:.25rem 0;max-width:48rem}}
.soft{{color:var(--soft);font-size:.875rem}}
.bad{{color:var(--bad)}}.good-text{{color:var(--fine)}}
.cards{{display:grid;gap:1rem;margin-top:1.5rem;
grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr))}}
.card{{background:var(--wash);border-radius:6px;padding:1rem 1.25rem}}
.card h3{{margin:0}}.card h3 span{{font-weight:400;color:var(--soft)}}
.big{{font-size:2rem;line-height:1.25;font-weight:600}}
.scroll{{overflow-x:auto;margin:.5rem 0 1rem}}
table{{border-collapse:collapse;width:100%;font-size:.875rem}}
caption{{text-align:left;color:var(--soft);padding:.25rem 0}}
th,td{{text-align:left;vertical-align:top;font-weight:400;padding:.35rem 1rem .35rem 0;
border-bottom:1px solid var(--line)}}
th:last-child,td:last-child{{padding-right:0}}
thead th{{color:var(--soft);vertical-align:bottom}}
.n{{text-align:right}}td.n{{white-space:nowrap}}
.plot{{display:block;width:100%;height:auto;overflow:visible}}
.plot text{{fill:var(--soft);font-size:12px}}
.grid{{stroke:var(--line)}}.tick{{stroke:var(--soft)}}
.mark{{stroke:var(--ink);stroke-dasharray:5 4;stroke-width:1.5}}
.line{{fill:none;stroke:var(--accent);stroke-width:2}}
.hit{{fill:transparent}}.hit:hover{{fill:var(--ink);fill-opacity:.06}}
.good{{fill:var(--good)}}.miss{{fill:var(--miss)}}.open{{fill:var(--open)}}
.range{{stroke:var(--good);stroke-width:3}}
.usual{{fill:var(--accent)}}.far{{fill:var(--miss)}}
.legend{{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;padding:0;
margin:.25rem 0 .5rem;font-size:.875rem;color:var(--soft)}}
.legend svg{{width:.75rem;height:.75rem;margin-right:.4rem}}
.lane{{font-size:.875rem;color:var(--soft);margin:.5rem 0 0}}
.facts{{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.5rem;margin:0;
font-size:.875rem}}
.facts dt{{color:var(--soft)}}.facts dd{{margin:0}}
{_FILLS}
@media(max-width:40rem){{.facts{{grid-template-columns:1fr}}
.facts dd{{margin:0 0 .5rem}}}}
@media print{{
*{{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
body{{font-size:10pt}}header,main{{max-width:none;padding:0}}header{{padding:0}}
h2,h3,.legend,.lane{{break-after:avoid}}.card,.plot,tr{{break-inside:avoid}}
.scroll{{overflow:visible;break-inside:avoid}}table,.soft,.legend,.lane,.facts{{font-size:8.5pt}}
th,td{{padding-right:.6rem}}
@page{{size:A4;margin:15mm}}}}
"""
