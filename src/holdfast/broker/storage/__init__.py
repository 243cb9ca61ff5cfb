"""The broker's storage engine: topics, partition logs and journals in one folder, or in memory.

`Store` is the door; everything else is reached through it. Synchronous and single-threaded: the broker calls it from
its event loop. Knows record batches only as bytes with a header; must not know the wire protocol's requests, sockets,
or groups.
"""
