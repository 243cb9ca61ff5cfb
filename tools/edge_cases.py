#!/usr/bin/env python
"""Fills the last column of docs/edge-cases.md: which test or simulator mutation stands for which known fault.

A test (or a mutation) says so itself: its docstring begins with "edge A4 …", or names several: "edge A4, A25 …".
`python tools/edge_cases.py` rewrites the table; a test fails when it drifts.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "edge-cases.md"
CLAIM = re.compile(r"\bedge ((?:[ABC]\d+(?:, | and )?)+)")
ROW = re.compile(r"^\| ([ABC]\d+) \|([^|]*)\|([^|]*)\|([^|]*)\|$")


@cache
def claims() -> dict[str, list[str]]:
    """Edge id -> names of the tests and mutations that stand for it, sorted."""
    found: dict[str, set[str]] = {}
    files = [*sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "src" / "holdfast" / "sim").rglob("*.py"))]
    for path in files:
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if CLAIM.search(text) else ():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for claim in CLAIM.findall(ast.get_docstring(node) or ""):
                for edge in re.findall(r"[ABC]\d+", claim):
                    found.setdefault(edge, set()).add(node.name)
    return {edge: sorted(names) for edge, names in found.items()}


def rendered(text: str) -> str:
    """The table with its last column filled in."""
    covered = claims()
    lines = []
    for line in text.splitlines():
        row = ROW.match(line)
        if row:
            edge, tickets, what, _ = row.groups()
            names = covered.get(edge, [])
            shown = ", ".join(f"`{name}`" for name in names) or "—"
            line = f"| {edge} |{tickets}|{what}| {shown} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(rendered(TABLE.read_text("utf-8")), "utf-8")
    missing = [
        m.group(1) for line in TABLE.read_text("utf-8").splitlines() if (m := ROW.match(line)) and "—" in m.group(4)
    ]
    sys.stdout.write(f"{72 - len(missing)} of 72 covered; open: {', '.join(missing) or 'none'}\n")
