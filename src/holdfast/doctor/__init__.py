"""The doctor rebuilds what happened to consumer groups from the logs they left behind.

    scan (lines to events)  ->  history (one group's events to rebalances and lives)  ->  findings  ->  words and pages

Everything in here is pure: text in, values out. It knows no file, clock, socket or Spark; `holdfast.spark.doctor` reads
the files on executors and calls these functions there, `holdfast.cli.doctor` shows what comes out.
"""
