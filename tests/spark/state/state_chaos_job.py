"""The job of the chaos test with state: three results of each batch, in a folder that the environment names."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))  # pytest has both; this file runs in a process without it

import state_apps
from state_events import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER = "HOLDFAST_STATE_CHAOS"


def transform(rows: DataFrame) -> DataFrame:
    return parsed(rows)


def write(rows: DataFrame, batch_id: int) -> None:
    state_apps.write(rows, batch_id, Path(os.environ[FOLDER]), str(os.getpid()))
