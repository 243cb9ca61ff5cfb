"""The consumer: a Python process as a member of a group.

The control plane is our member machine, run by `net` on a thread of its own; the data plane is librdkafka in
manual-assign mode with explicit offsets, or our own fetcher where Arrow batches are wanted. `holdfast.Consumer` puts
them behind the surface of `confluent_kafka.Consumer`. `holdfast.AsyncConsumer` is the same for asyncio, on one thread
for all consumers of a process and without librdkafka.
"""
