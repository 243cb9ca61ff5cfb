"""The broker's storage engine: topics, partition logs and journals in one folder, or in memory.

`Store` (in `store`) is the entrance; everything else is reached through it. Synchronous, called from the broker's event
loop; what takes long (`SyncRound`, `Plan`, `Mend`) is a value whose `run` may be called in a thread. Knows record
batches only as bytes with a header; must not know the wire protocol's requests, sockets, or groups.

    files         the file layer and the real one; `memory` the one for --memory; `pool` bounds open handles
    batch         the header of a record batch: checked, stamped, never decoded
    scan          checking a file batch by batch, and finding the next good batch after damage
    index         the sparse table of offsets, positions and times; `segment` one file of a log with its index
    segments      the files of a partition, in order; opened, checked, and reported where they are damaged
    producers     idempotent producers; `producer_ids` the ids they get
    log           a partition; `times` finding a record by its time; `start` where the log starts; `config` its settings
    logs          the partitions that are open; `retention` when old segments are looked for
    journal       keys and values in order, in `frames`; `compact` copies what counts into the next of its files, which
                  are `numbered`
    topics        the catalog, in a journal; `sweep` the files of deleted topics
    sync          when data is forced to disk, and what each policy protects against
    mend          rewriting a file whose sync failed
    errors        refusals with Kafka's codes, and repairs as values
"""
