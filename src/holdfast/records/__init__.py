"""Kafka record batches: read, written, and decoded straight into Arrow.

    header       the header of a record batch (magic 2), its bytes and its checksum
    batch        batches and a plain record iterator; slow, and what tests compare the fast path with
    transactions which batches a reader of committed records must not see
    compression  the four codecs, bounded
    encode       record batches from records
    arrow        the fast path: Fetch answers in, `pyarrow.RecordBatch` out, no Python object per record
    columns      the buffers of one such batch; slabs is the memory under them
    walk         checks every record of a batch without making objects; sound is a fast form of it that only accepts
    kernel       the inner loop, written for numba over memory; layout has its arguments, native its machine code

Import the module you need: this package imports none of them, so that numba and pyarrow load only for `arrow`.
It knows `holdfast.model` and nothing else of ours; bytes come in and go out, there are no sockets here.
"""
