"""The doctor as a PySpark job: files to findings.

    pieces (driver: what there is to read)  ->  reading (executors: bytes to events, as Arrow)  ->  job (groups, tables)

Lines never pass through the JVM: executors open the files themselves and hand over the few events in them, so little is
shuffled and kept. The driver gets only the findings and bounded summaries.
"""
