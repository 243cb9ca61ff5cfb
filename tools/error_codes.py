"""Every error code of ours with its cause and way out, read from the source: docs/troubleshooting.md.

    python tools/error_codes.py            rewrite the tables in docs/troubleshooting.md
    python tools/error_codes.py --check    exit code 1 if they are not what the source says

An error is made by `HoldfastError(code, what, do)` or one of its subclasses. The page shows what stands there, with
`‹name›` for whatever is only known when it happens. Kafka's own codes keep Kafka's names and are not listed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "holdfast"
PAGE = Path(__file__).parents[1] / "docs" / "troubleshooting.md"
BEGIN, END = "<!-- error codes: made by tools/error_codes.py -->\n", "<!-- end of error codes -->\n"

ROOMS = {
    "client": "Consumers",
    "group": "Groups",
    "assign": "Assignors",
    "spark": "Spark",
    "broker": "The embedded broker",
    "net": "Connections",
    "wire": "Connections",
    "records": "Records",
    "model": "Groups",
    "cli": "The command line",
    "bench": "Benchmarks",
    "sim": "The simulator",
    "testing": "Testing",
    "trace": "Traces",
    "ui": "The page",
    "doctor": "The doctor",
}
"""The page's sections, by the folder an error is made in."""

ELSEWHERE = "Elsewhere"

SAID_THEN = "The message says it."
"""For what is put together elsewhere."""

Names = dict[str, ast.expr | None]
"""What a name stands for; None where it stands for several things."""


@dataclass(frozen=True, order=True)
class Told:
    """One place where an error is made."""

    room: str
    code: str
    what: str
    do: str


def found() -> list[Told]:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    kinds = _kinds(trees.values())
    names = _assigned(node for tree in trees.values() for node in tree.body)
    told = {each for path, tree in trees.items() for each in _made_in(path, tree, kinds, names)}
    full = {each for each in told if SAID_THEN not in (each.what, each.do)}
    explained = {(each.room, each.code) for each in full}
    return sorted(full | {each for each in told if (each.room, each.code) not in explained})


def _kinds(trees: Iterable[ast.Module]) -> set[str]:
    """HoldfastError and its subclasses, by name."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    kinds, before = {"HoldfastError"}, 0
    while len(kinds) > before:
        before = len(kinds)
        kinds |= {each.name for each in classes if any(_name(base) in kinds for base in each.bases)}
    return kinds


def _made_in(path: Path, tree: ast.Module, kinds: set[str], names: Names) -> Iterator[Told]:
    room = ROOMS.get(path.relative_to(SOURCE).parts[0], ELSEWHERE)
    constants = names | _assigned(tree.body)
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            known = constants | _assigned(list(ast.walk(scope)))
            for node in ast.walk(scope):
                if isinstance(node, ast.Call) and len(node.args) >= 3 and _makes_an_error(node, kinds):
                    code, what, do = (_text(argument, known) for argument in node.args[:3])
                    if code is not None and code.isupper():
                        yield Told(room, code, what or SAID_THEN, do or SAID_THEN)


def _makes_an_error(call: ast.Call, kinds: set[str]) -> bool:
    """HoldfastError(…), a subclass of it, or super().__init__(…) within one."""
    name = _name(call.func)
    return name in kinds or name == "__init__"


def _assigned(nodes: Iterable[ast.AST]) -> Names:
    """What a name stands for: its only value, or None where there are several."""
    values: Names = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for each, value in pairs:
                if isinstance(each, ast.Name):
                    values[each.id] = None if each.id in values else value
    return values


def _text(node: ast.expr | None, known: Names) -> str | None:
    """What a reader would see, with ‹…› for what is only known when it happens. None: that is all of it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(_text(part, known) or f"‹{_placeholder(part)}›" for part in values)
        case ast.FormattedValue(value):
            return _text(value, known) if isinstance(value, ast.Name) and known.get(value.id) is not None else None
        case ast.BinOp(left, ast.Add(), right):
            before, after = _text(left, known), _text(right, known)
            return None if before is None or after is None else before + after
        case ast.IfExp(_, body, orelse):
            first, second = _text(body, known), _text(orelse, known)
            return first if first == second or second is None else (second if first is None else f"{first} / {second}")
        case ast.Name(name):
            stands_for = known.get(name)
            return None if stands_for is None else _text(stands_for, {**known, name: None})
    return None


def _placeholder(part: ast.expr) -> str:
    value = part.value if isinstance(part, ast.FormattedValue) else part
    while isinstance(value, ast.Call | ast.Subscript):
        inner = value.args[0] if isinstance(value, ast.Call) and value.args else None
        value = inner if inner is not None else (value.func if isinstance(value, ast.Call) else value.value)
    name = _name(value)
    return name.strip("_").replace("_", " ") if name and not isinstance(value, ast.Constant) else "…"


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def page() -> str:
    """The tables, a section for each room."""
    lines: list[str] = []
    order = [*ROOMS.values(), ELSEWHERE]
    everything = found()  # once: it reads the whole source
    rooms = sorted({told.room for told in everything}, key=order.index)
    for room in rooms:
        lines += [f"### {room}", "", "| Code | What happened | What to do |", "| --- | --- | --- |"]
        lines += [
            f"| `{told.code}` | {_cell(told.what)} | {_cell(told.do)} |" for told in everything if told.room == room
        ]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def written(before: str) -> str:
    """The page with its tables made anew."""
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{page()}{END}{tail}"


def main(arguments: list[str]) -> int:
    before = PAGE.read_text(encoding="utf-8")
    now = written(before)
    if arguments == ["--check"]:
        if before != now:
            sys.stderr.write(
                "docs/troubleshooting.md is not what the source says: run `python tools/error_codes.py`.\n"
            )
        return 0 if before == now else 1
    PAGE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
