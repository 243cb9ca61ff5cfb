"""The trace: one versioned record per step, written and read as JSON lines, rendered to one line for people.

Logs, the page, the doctor and the simulator's printout are made from these records and from nothing else. The record
itself is `holdfast.model.TraceRecord`, so that the pure machines can emit it; this package is what surrounds it:

    with TraceFile(Path("group.trace")) as trace:      bounded, rotating
        trace.write(record)
    for record in read_trace(lines, on_bad=report):    a bad line is reported with its number and costs nothing else
        print(render(record))
"""

from holdfast.trace.codec import BadLine, decode, encode, read_trace
from holdfast.trace.files import TraceFile, read_trace_file
from holdfast.trace.render import HEADER, partitions_text, render

__all__ = [
    "HEADER",
    "BadLine",
    "TraceFile",
    "decode",
    "encode",
    "partitions_text",
    "read_trace",
    "read_trace_file",
    "render",
]
