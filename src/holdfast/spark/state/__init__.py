"""State that follows the partition: operators that keep state between batches, for use with the exactly-once sinks.

Spark's own state stores are not used. The state of each partition is a short list of immutable sorted files (`runs`),
listed in the last entry of a chain that two writers can't both extend (`chain`). An entry holds the offsets, the files
and the output of one batch, so all three count or none does. The partition's next owner reads the last entry and
continues.
"""
