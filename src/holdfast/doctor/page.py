"""The report as one HTML file: findings first, then each group drawn. It loads nothing from anywhere.

Names come from outside: everything that is not written here passes through `html.escape`. Pictures are `drawing`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from holdfast.doctor import causes
from holdfast.doctor.drawing import COLOURS, pauses_svg, timeline_svg
from holdfast.doctor.finding import counted
from holdfast.doctor.words import TITLES, at_most, clock, cost_text

Row = Mapping[str, Any]

REBALANCES_SHOWN = 200

_COMMAND = re.compile(r"`([^`]+)`|(?<=\()(holdfast sim [^)]*)(?=\))")

_STYLE = """
:root{color-scheme:light dark;--bg:#fbfaf8;--fg:#1d2329;--soft:#6b7480;--line:#dfe3e7;--card:#fff;--bad:#b3261e;
--good:#1a7f4b}
@media(prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e6e9ec;--soft:#98a2ad;--line:#2c343c;--card:#1b2127;
--bad:#ff8a80;--good:#6fd39a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:1rem 0 .3rem}
p{margin:.3rem 0}.soft{color:var(--soft)}
.card{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--bad);border-radius:8px;
padding:.8rem 1rem;margin:.8rem 0;overflow-wrap:anywhere}
.well{border-left-color:var(--good)}
code{font:.9em ui-monospace,monospace;background:var(--bg);border:1px solid var(--line);border-radius:4px;
padding:0 .3em}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--card)}
.wide svg{display:block;min-width:640px;width:100%;height:auto}
svg text{fill:var(--fg);font:11px system-ui,sans-serif}svg .soft{fill:var(--soft)}svg line{stroke:var(--line)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.key{display:inline-flex;align-items:center;gap:.3rem;margin:0 .8rem .2rem 0;font-size:.85rem}
.key i{width:.8rem;height:.8rem;border-radius:3px;display:inline-block}
details summary{cursor:pointer;color:var(--soft)}
@media(max-width:600px){main{padding:.6rem}.card{padding:.6rem}}
"""


def page(
    read: str, groups: Sequence[Row], findings: Sequence[Row], drawn: Mapping[str, Sequence[Row]], notes: Sequence[str]
) -> str:
    """`read` says how much was read; `drawn` has all tables of the groups that are drawn, by table."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width,initial-scale=1'>",
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>holdfast doctor</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>holdfast doctor</h1><p class='soft'>{escape(read)}</p>",
        *(f"<p class='soft'>{escape(note)}</p>" for note in notes),
        "<h2>Findings</h2>",
        *([_finding(row) for row in findings] or ["<div class='card well'>Nothing is wrong with these groups.</div>"]),
        "<h2>Groups</h2>",
        _groups(groups),
    ]
    for row in groups:
        if any(one["group"] == row["group"] for one in drawn.get("groups", ())):
            parts.append(_group(row, drawn))
    parts.append("</main></body></html>")
    return "".join(parts)


def _finding(row: Row) -> str:
    who = f": <strong>{escape(row['culprit'])}</strong>" if row["culprit"] else ""
    change = " ".join(f"<code>{escape(key)}={escape(str(value))}</code>" for key, value in row["change"].items())
    lines = "".join(
        f"<tr><td>{clock(each['at_ms'])}</td><td>{escape(each['what'])}</td><td>{escape(each['where'])}</td></tr>"
        for each in row["evidence"]
    )
    evidence = f"<details><summary>Evidence</summary><div class='wide'><table>{lines}</table></div></details>"
    return (
        f"<div class='card'><p><strong>{_begun(TITLES.get(row['kind'], str(row['kind'])))}</strong> in "
        f"{escape(row['group'])}{who}</p><p>{escape(row['what'])}</p>"
        f"<p class='soft'>Cost: {cost_text(row)}.</p>"
        + (f"<p>Change {change}</p>" if change else "")
        + f"<p>{_prose(row['do'])}</p><p class='soft'>{_begun(row['saves_how'])}</p>"
        + (evidence if lines else "")
        + "</div>"
    )


def _begun(text: str) -> str:
    """With a capital first letter."""
    return _prose(text[:1].upper() + text[1:])


def _prose(text: str) -> str:
    """Commands become <code>: those in backquotes, and a `holdfast sim` in brackets."""
    return _COMMAND.sub(r"<code>\1\2</code>", escape(text))


def _groups(groups: Sequence[Row]) -> str:
    rows = "".join(
        f"<tr><td>{escape(row['group'])}</td>"
        f"<td>{escape('consumer' if row['new_protocol'] else row['protocol'] or '?')}</td>"
        f"<td class='n'>{row['members']}</td><td class='n'>{row['partitions'] or '?'}</td>"
        f"<td class='n'>{row['rebalances']}</td><td class='n'>{row['share_rebalancing']:.0%}</td>"
        f"<td class='n'>{at_most(row, '≤ ')}{row['partition_seconds']:.1f}</td>"
        f"<td class='n'>{row['findings']}</td></tr>"
        for row in groups
    )
    head = "".join(
        f"<th>{name}</th>"
        for name in ("group", "assignor", "members", "partitions", "rebalances", "time in them", "partition-seconds",
                     "findings")
    )  # fmt: skip
    return f"<div class='wide'><table><tr>{head}</tr>{rows}</table></div>"


def _group(row: Row, drawn: Mapping[str, Sequence[Row]]) -> str:
    def of(table: str) -> list[Row]:
        return [one for one in drawn.get(table, ()) if one["group"] == row["group"]]

    rebalances = sorted(of("rebalances"), key=lambda one: one["began_ms"])
    used = [name for name in COLOURS if any(one["trigger"] == name for one in rebalances)]
    key = "".join(
        f"<span class='key'><i style='background:{COLOURS[name]}'></i>{escape(causes.WORDS[name])}</span>"
        for name in used
    )
    return (
        f"<h2>{escape(row['group'])}</h2><p class='soft'>{clock(row['first_ms'])} to {clock(row['last_ms'])}, UTC"
        f"{'' if row['from_coordinator'] else '; without a coordinator’s log'}</p>"
        f"<div>{key}</div><div class='wide'>"
        + timeline_svg(row["first_ms"], row["last_ms"], rebalances, of("lanes"), of("lives"))
        + "</div><h3>How long partitions stood still</h3><div class='wide'>"
        + pauses_svg([one["to_ms"] - one["from_ms"] for one in of("pauses")])
        + "</div>"
        + _rebalances(rebalances)
    )


def _rebalances(rows: Sequence[Row]) -> str:
    def moved(row: Row) -> str:
        if row["moved"] is None:
            return "?"
        return f"{row['moved']}" + (f" ({row['needlessly_moved']} needlessly)" if row["needlessly_moved"] else "")

    body = "".join(
        f"<tr><td>{clock(row['began_ms'])}</td><td class='n'>{row['generation']}</td><td class='n'>{row['rounds']}</td>"
        f"<td>{escape(row['trigger'])}</td><td>{escape(row['culprit'])}</td>"
        f"<td class='n'>{row['took_ms'] / 1000:.2f}</td>"
        f"<td class='n'>{row['waited_ms'] / 1000:.2f}</td><td>{escape(row['slowest'])}</td>"
        f"<td class='n'>{row['planned_ms'] / 1000:.2f}</td><td class='n'>{row['synced_ms'] / 1000:.2f}</td>"
        f"<td>{moved(row)}</td><td class='n'>{at_most(row, '≤ ')}{row['partition_seconds']:.1f}</td>"
        f"<td>{escape(row['where'])}</td></tr>"
        for row in rows[:REBALANCES_SHOWN]
    )
    more = f"<p class='soft'>and {len(rows) - REBALANCES_SHOWN} more</p>" if len(rows) > REBALANCES_SHOWN else ""
    names = ("began", "generation", "rounds", "cause", "culprit", "took, s", "waited, s", "for", "planned, s",
             "synced, s", "moved", "partition-seconds", "where")  # fmt: skip
    head = "".join(f"<th>{name}</th>" for name in names)
    table = f"<div class='wide'><table><tr>{head}</tr>{body}</table></div>"
    return f"<details><summary>{counted(len(rows), 'rebalance')}</summary>{table}{more}</details>"
