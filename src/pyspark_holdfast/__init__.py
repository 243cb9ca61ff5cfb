"""Found by PySpark by its name: every session knows `format("holdfast")` without a line of code.

PySpark imports each installed module whose name begins with `pyspark_` and registers its `DefaultSource`.
"""

from holdfast.spark.source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
