"""State that follows the partition: operators that keep state between batches, beside the exactly-once sinks.

Nothing of Spark's own state is used. The state of each partition is a short list of immutable sorted files (`runs`),
named by the last entry of a chain that two writers can't both extend (`chain`). An entry holds the offsets, the files
and the output of one batch, so all three count or none does. Whoever gets the partition reads the last entry and goes
on.
"""
