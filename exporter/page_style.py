"""The style sheet of the status page: one accent, light and dark, narrow and wide."""

from __future__ import annotations

# Text colours keep a contrast of at least 4.5 to the background (WCAG AA).
STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b2127;--soft:#57616b;--line:#dde1e5;
--wash:#eceff2;--accent:#0a5fb4;--bad:#b3261e;--warn:#855100}
@media(prefers-color-scheme:dark){:root{--page:#14181c;--ink:#e4e8ec;--soft:#9aa5b0;
--line:#2e353c;--wash:#252b32;--accent:#78b4f5;--bad:#ff8f85;--warn:#efb44e}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
font:1rem/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;
overflow-wrap:break-word}
bdi,code,dd{overflow-wrap:anywhere}
header,main,footer{max-width:70rem;margin:auto;padding:0 1.5rem}
header{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;align-items:baseline;
padding-top:1.25rem;color:var(--soft);font-size:.875rem}
header h1{font-size:1rem;margin:0;color:var(--ink)}
header nav{margin-left:auto}
nav a{margin-left:1rem}nav a:first-child{margin-left:0}
footer{padding-bottom:3rem}
a{color:var(--accent)}
h2{font-size:.875rem;font-weight:600;color:var(--soft);margin:2.5rem 0 .5rem}
h3{font-size:1.25rem;line-height:1.4;font-weight:400;margin:0 0 .25rem;max-width:48rem}
h4{font-size:1rem;font-weight:600;margin:1.5rem 0 .25rem}h4 span{font-weight:400}
p,ul{margin:.25rem 0;max-width:48rem}
strong{font-weight:650}
.soft{color:var(--soft)}.small{font-size:.875rem}
.bad{color:var(--bad)}.warn{color:var(--warn)}
.glyph{margin-right:.4em}
.absent{color:var(--soft);text-decoration:none;cursor:help}
.notices{margin-top:1.5rem}
.notices p{margin:.5rem 0;padding-left:.75rem;border-left:3px solid var(--line)}
.notices p.bad{border-color:currentColor}
.trouble{list-style:none;padding:0;margin:1.5rem 0 0;font-size:1.125rem;line-height:1.6}
.slo{margin-bottom:2rem}
.bar{display:block;width:100%;max-width:48rem;height:46px;margin:.25rem 0}
.track{fill:var(--wash)}.certain{fill:var(--accent)}.possible{fill:var(--accent);opacity:.4}
.edge{stroke:var(--accent);stroke-width:2}.mark{stroke:var(--ink);stroke-width:2}
.bar text{fill:var(--soft);font-size:12px}
table{border-collapse:collapse;width:100%;font-size:.875rem}
table.narrow{width:auto;min-width:min(100%,32rem)}
caption{text-align:left;color:var(--soft);padding:.25rem 0}
th,td{text-align:left;vertical-align:top;font-weight:400;padding:.4rem 1rem .4rem 0;
border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--soft)}
.n{text-align:right}
td.n{white-space:nowrap}
.overview th[scope=row]{min-width:8rem}
.overview td.state{white-space:nowrap}
.overview .note{width:45%}
details{margin:.5rem 0}
summary{cursor:pointer;color:var(--soft);font-size:.875rem}
.target{border-top:1px solid var(--line);margin:0;padding:.75rem 0}
.target>summary{font-size:1rem;color:var(--ink)}
.target>div{scroll-margin-top:4rem;padding:.25rem 0 1.5rem}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.25rem;
margin:.5rem 0;font-size:.875rem}
.facts dt{color:var(--soft)}.facts dd{margin:0}.facts dd div+div{margin-top:.2rem}
.verdict{margin:.75rem 0}.verdict p{max-width:60rem}
.ranks th,.ranks td{vertical-align:middle}.ranks td{width:26%}.ranks .peak{width:8rem}
.gauge{display:flex;align-items:center;gap:.75rem}
.gauge b{font-weight:400;min-width:3.25rem}
.gauge .plot{flex:1;max-width:14rem}
.spark{display:block;width:100%;height:30px;overflow:visible}
.spark path{fill:none;stroke:var(--accent);stroke-width:1.5;stroke-linejoin:round;
stroke-linecap:round;vector-effect:non-scaling-stroke}
.spark rect{fill:var(--wash)}
.strip{display:block;width:100%;max-width:48rem;height:14px;margin:.35rem 0;
background:var(--wash)}
.strip .none{fill:var(--line)}.strip .unknown{fill:none}
.strip .memory{fill:#8250c4}.strip .compute{fill:#0a7d8c}.strip .queueing{fill:#b26a00}
.strip .traffic,.strip .gateway,.strip .communication{fill:#4f7a1f}
.strip .fault{fill:var(--bad)}
.plot{border-bottom:1px solid var(--line)}
.axis{display:flex;flex-direction:column;justify-content:space-between;height:34px;
min-width:2.5rem;font-size:.6875rem;line-height:1;color:var(--soft)}
code{font:.875em ui-monospace,monospace;white-space:pre-wrap}
@media(max-width:44rem){
header,main,footer{padding-left:1rem;padding-right:1rem}
header nav{margin-left:0}
h2{margin-top:2.25rem}h3{font-size:1.125rem}
.stack,.stack tbody,.stack tr,.stack th,.stack td,.stack caption{display:block}
.stack thead{position:absolute;width:1px;height:1px;overflow:hidden;
clip-path:inset(50%)}
.stack tr{padding:.6rem 0;border-bottom:1px solid var(--line)}
.stack th,.stack td{border:0;padding:.1rem 0;width:auto;text-align:left}
.stack td{display:flex;gap:.75rem;white-space:normal}
.stack td::before{content:attr(data-label);color:var(--soft);flex:0 0 6.5rem}
.stack td:empty{display:none}
.stack th[data-label]::before{content:attr(data-label) " "}
.ranks td{align-items:center}
.overview tr{display:grid;grid-template-columns:1fr 1fr auto;gap:0 .75rem}
.overview th[scope=row]{grid-column:1/3}
.overview td.state{justify-content:flex-end;text-align:right}
.overview td.state::before,.overview td.note::before{content:none}
.overview td.note{grid-column:1/4;width:auto}
.overview td.n{gap:.4rem}.overview td.n::before{flex:none}
.gauge{flex:1}
.facts{grid-template-columns:1fr;gap:0}.facts dd{margin-bottom:.35rem}
th,td{padding-right:.6rem}
.narrow{font-size:.8125rem}.narrow th,.narrow td{padding-right:.4rem}
.narrow td.n{white-space:normal}
}
@media(max-width:23rem){
.narrow{font-size:.75rem}.narrow th,.narrow td{padding-right:.3rem}
}
"""
