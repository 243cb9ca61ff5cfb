"""Where tests reach into private names of classes and modules. `python tests/repo/private_names.py` lists it.

What counts: `x._name` on anything but self and cls, `from module import _name`, a private name as text in a call of
setattr, getattr, delattr or hasattr, and all of that inside programs that a test keeps as text.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent

PRIVATE = re.compile(r"_[a-zA-Z]\w*(?<!__)$")
DOCUMENTED = frozenset({"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"})
"""Names of the standard library that are public all the same."""
BY_TEXT = frozenset({"delattr", "getattr", "hasattr", "setattr"})


def is_private(name: str) -> bool:
    return PRIVATE.match(name) is not None and name not in DOCUMENTED


def named(node: ast.expr) -> str:
    """The last name of an expression: `c` of `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def private_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name) if is_private(name):
                # confluent-kafka's own codes: `KafkaError._STATE`.
                if named(owner) != "KafkaError" and not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                    yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names if is_private(alias.name))
            case ast.Call(func=called, args=given) if named(called) in BY_TEXT:
                texts = [each.value for each in given[:2] if isinstance(each, ast.Constant)]
                last = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
                yield from (name for name in last if is_private(name))
            case ast.Constant(value=str(text)) if "import " in text:
                with contextlib.suppress(SyntaxError):  # prose
                    yield from private_names(ast.parse(text))
            case _:
                pass


def found() -> Counter[tuple[str, str]]:
    """How often each file of the tests reaches for each private name."""
    counted: Counter[tuple[str, str]] = Counter()
    for path in sorted(TESTS.rglob("*.py")):
        if path.name != "test_private_names.py" and not any(part[0] == "." for part in path.relative_to(ROOT).parts):
            names = private_names(ast.parse(path.read_text(encoding="utf-8")))
            counted.update((path.relative_to(TESTS).as_posix(), name) for name in names)
    return counted


if __name__ == "__main__":
    reached = found()
    for (file, name), count in sorted(reached.items()):
        print(f"{count:4}  {file}  {name}")
    print(f"{reached.total():4}  together")
