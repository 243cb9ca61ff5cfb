"""The doctor as a PySpark job: files to findings.

    pieces (driver: what there is to read)  ->  reading (executors: bytes to events, as Arrow)  ->  job (groups, tables)

Lines never pass through the JVM: executors open the files themselves and hand over the few events in them, so that what
is shuffled and kept is small. The driver gets the findings and bounded summaries, and nothing else.
"""
