"""`format("holdfast-files")`: Parquet files, each row exactly once, across applications, crashes and rebalances.

    rows.writeStream.format("holdfast-files").option("checkpointLocation", …).start("/data/orders")
    spark.read.format("holdfast-files").load("/data/orders")

All applications of a group write into the same path. A ledger per partition says which files count; see `ledger`.
"""

from __future__ import annotations

from holdfast.spark.files.sink import committed_files, positions

__all__ = ["committed_files", "positions"]
