"""A state as a whole: its settings and its partitions.

_holdfast/state.json                                  operator and columns
_holdfast/identity.json                               a name of its own, which its sink keeps
_holdfast/known/orders/3.json                         that there has been state of orders-3
_holdfast/state/orders/3/entries/000000000017.json    the chain of orders-3
_holdfast/state/orders/3/runs/5d0c….arrow             its state
outbox/orders/3/77e1….parquet                         results for a sink that is not holdfast-files
_README
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.files.sink import partitions_under
from holdfast.spark.files.store import Store
from holdfast.spark.state.chain import ROOT

STATE = "_holdfast/state.json"
IDENTITY = "_holdfast/identity.json"
README = "_README"
VERSION = 1

README_TEXT = """This is the state of a streaming query of holdfast, by partition.

Do not delete or move anything by hand. Instead:

    holdfast pipeline state PATH                          what is held, how large, and up to where
    holdfast pipeline state PATH --clean                  removes files that nothing refers to any more
    holdfast pipeline state PATH --start-empty orders-3   forgets the state of one partition
"""


def open_state(store: Store, *, operator: str, columns: str, first: bool, told: str) -> None:
    """Create the state if it is new; refuse state that was made by another operator or with other columns.

    `first`: it may be new. Later it has to exist: a query that has lost its state must not silently start empty.
    """
    wanted = {"v": VERSION, "operator": operator, "columns": columns}
    if store.read(STATE) is None:
        if not first:
            raise HoldfastError(
                "STATE_MISSING",
                f"There is no state at {getattr(store, 'root', 'its path')}, and {told} is not the query's first.",
                "Check the path, and that it is mounted. To begin without state, start on a fresh checkpointLocation.",
            )
        store.create(README, README_TEXT.encode())
        store.create(STATE, json.dumps(wanted, sort_keys=True).encode())
    made = read_state(store)
    for what in ("operator", "columns"):
        if made[what] != wanted[what]:
            raise HoldfastError(
                "STATE_DIFFERS",
                f"The state was made by another {what.removesuffix('s')}: {made[what]}, and here is {wanted[what]}.",
                "Give this query another path for its state, and a group of its own to read what came before; or put "
                "the old query back.",
            )


def identity_of(store: Store) -> str:
    """The state's own name, given to it when it is first asked for. All applications get the same."""
    data = store.read(IDENTITY)
    if data is None:
        store.create(IDENTITY, json.dumps({"v": VERSION, "state": uuid.uuid4().hex}).encode())
        data = store.read(IDENTITY)
    try:
        return str(json.loads(data or b"")["state"])
    except (KeyError, TypeError, ValueError) as error:
        raise HoldfastError(
            "STATE_UNREADABLE", f"{IDENTITY} can't be read ({error}).", "Restore it from a backup."
        ) from error


def read_state(store: Store) -> dict[str, Any]:
    data = store.read(STATE)
    if data is None:
        raise HoldfastError("NOT_A_STATE", "There is no state of holdfast at this path.", "Check the path.")
    try:
        found: dict[str, Any] = json.loads(data)
        if found["v"] != VERSION:
            raise ValueError(f"version {found['v']}")
        return {"operator": str(found["operator"]), "columns": str(found["columns"])}
    except (KeyError, TypeError, ValueError) as error:
        raise HoldfastError(
            "STATE_UNREADABLE", f"{STATE} can't be read ({error}).", "Restore it from a backup."
        ) from error


def partitions_of(store: Store) -> list[TopicPartition]:
    return partitions_under(store, ROOT)
