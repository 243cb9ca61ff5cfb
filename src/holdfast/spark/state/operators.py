"""What an operator is: a pure function from state and rows to changes of state and output, in the order of offsets.

`step` takes the next rows of one partition, reads and changes state through the `View`, and returns the output. It must
not matter how rows are cut into steps: a batch may be one step or many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from holdfast.model import HoldfastError
from holdfast.spark.state.aggregates import no_column
from holdfast.spark.state.keys import check_key_type, codes_of, flat, picked
from holdfast.spark.state.runs import Layout, View


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step."""

    output: pa.Table
    watermark: int
    late: int = 0
    """How many rows were late and dropped."""


class Operator(Protocol):
    """A value that is pickled to executors."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns it needs; None for all."""

    @property
    def keeps_offsets(self) -> bool:
        """Whether the output consists of input rows, with their own topic, partition and offset."""

    @property
    def signature(self) -> str:
        """A text that identifies the state's form. State that was written under another one is refused."""

    @property
    def supersedes(self) -> tuple[str, ...] | None:
        """Key columns of the output: in a batch, a later row replaces earlier ones. None if all rows count."""

    def layout(self, given: pa.Schema) -> Layout: ...

    def output(self, given: pa.Schema) -> pa.Schema: ...

    def step(self, view: View, rows: pa.Table, watermark: int) -> Step: ...


def check_names(names: Iterable[str], given: pa.Schema) -> None:
    for name in names:
        if name not in given.names:
            raise no_column(name, given)


def check_keys(names: Sequence[str], given: pa.Schema) -> None:
    check_names(names, given)
    for name in names:
        check_key_type(name, given.field(name).type)


def check_free(made: Sequence[str]) -> None:
    """Refuse duplicate names in the result, and names that the ledger or the state needs."""
    for name in made:
        if made.count(name) > 1 or name.startswith("__") or name in ("topic", "partition", "offset"):
            raise HoldfastError(
                "STATE_NAME_TAKEN",
                f"The result can't have a column {name!r}: it is there twice, or is one of ours.",
                "Rename it. The result has topic, partition and offset by itself; names with __ are kept for state.",
            )


def table_of(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([flat(columns[field.name]).cast(field.type) for field in schema], schema=schema)


def last_rows(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The last row of each key, in the original order."""
    parts: list[Any] = []
    for name in names:
        column = flat(table[name])
        parts += column.flatten() if pa.types.is_struct(column.type) else [column]
    codes = codes_of(parts, table.num_rows)[::-1]
    _, first = np.unique(codes, return_index=True)
    return table.take(picked(np.sort(table.num_rows - 1 - first)))
