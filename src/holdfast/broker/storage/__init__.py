"""The broker's storage engine: topics, partition logs and journals in one folder, or in memory.

`Store` (in `store`) is the entrance; everything else is reached through it. Synchronous, called from the broker's event
loop; what takes long (`SyncRound`, `Plan`, `Mend`) is a value whose `run` may be called in a thread. Knows record
batches only as bytes with a header; must not know the wire protocol's requests, sockets, or groups.

    files      the file layer and the real one; `memory` the one for --memory; `pool` bounds open handles
    batch      the header of a record batch: checked, stamped, never decoded
    scan       checking a file batch by batch, and finding the next good batch after damage
    index      the sparse table of offsets, positions and times; `segment` one file of a log with its index
    producers  idempotent producers; `times` finding a record by its time; `start` where the log starts
    log        a partition; `config` its settings
    journal    keys and values in order, compacted, in `frames`; `topics` the catalog in one; `sweep` files of deleted
               topics
    sync       when data is forced to disk, and what each policy protects against
    mend       rewriting a file whose sync failed
    errors     refusals with Kafka's codes, and repairs as values
"""
