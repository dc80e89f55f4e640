"""The style sheet of the report: light and dark, after the reader's choice."""

STYLE = """
:root { color-scheme: light dark; --back: #fbfbfa; --card: #ffffff; --ink: #1d2126; --faint: #667080; --rule:
  #e3e5e8; --grid: #eceef0; --warn: #fff4d6; --warn-ink: #6b4a00; --warn-rule: #e7c66b; --series-0: #2463c9;
  --series-1: #d1570c; --series-2: #23805a; --series-3: #8e4bb8; --series-4: #b38600; --series-5: #c2326b;
  --series-6: #1c8a99; --series-7: #7a6a58; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --card: #1c2026; --ink: #e6e9ed; --faint: #97a1ae;
  --rule: #30363e; --grid: #272c33; --warn: #3a3010; --warn-ink: #f2d78c; --warn-rule: #7a6420; --series-0: #6ea2ff;
  --series-1: #ff9a56; --series-2: #56c596; --series-3: #c08be6; --series-4: #e0b83c; --series-5: #f2769f;
  --series-6: #55c3d1; --series-7: #bba991; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans",
  sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 34px 0 10px; }
.state { color: var(--faint); margin: 4px 0 18px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; }
.tile, .chart, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.tile { padding: 10px 14px; }
.tile b { display: block; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--faint); font-size: 13px; }
.warning { background: var(--warn); color: var(--warn-ink); border: 1px solid var(--warn-rule); border-radius: 8px;
  padding: 10px 14px; margin: 12px 0 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 16px;
  margin-top: 18px; }
.chart { margin: 0; padding: 12px 12px 6px; min-width: 0; }
figcaption { font-weight: 600; margin-left: 4px; }
.legend { font-size: 13px; color: var(--faint); margin: 2px 4px 4px; min-height: 20px; }
.key { margin-right: 14px; white-space: nowrap; }
.key i { display: inline-block; width: 18px; border-top: 3px solid var(--c); margin-right: 5px; vertical-align:
  middle; }
.key i.dashed { border-top-style: dashed; }
.key i.dot { width: 8px; height: 8px; border: 0; border-radius: 4px; background: var(--c); }
.chart > svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--faint); font-variant-numeric: tabular-nums; }
.grid { stroke: var(--grid); }
.axis { stroke: var(--rule); fill: none; }
.mark { stroke: var(--faint); stroke-dasharray: 3 4; opacity: .7; }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.line.dashed { stroke-dasharray: 6 4; }
.dot { fill: var(--c); }
.hover circle { fill: transparent; }
.hover circle:hover { fill: var(--c); }
.none { color: var(--faint); margin: 30px 4px; }
.card { padding: 4px 14px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--faint); font-weight: 500; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.options { columns: 330px 3; column-gap: 30px; padding: 8px 14px; font-size: 14px; }
.options div { break-inside: avoid; display: flex; justify-content: space-between; gap: 12px; border-bottom: 1px
  solid var(--grid); padding: 2px 0; color: var(--faint); }
.options div.set { color: var(--ink); font-weight: 600; }
.options span + span { overflow-wrap: anywhere; text-align: right; }
details summary { cursor: pointer; font-size: 17px; font-weight: 600; margin: 34px 0 10px; }
p.note { color: var(--faint); font-size: 13.5px; margin: 6px 2px; }
"""
