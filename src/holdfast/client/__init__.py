"""The consumer: a Python process as a member of a group.

The control plane is our member machine, run by `net` on a thread of its own; the data plane is librdkafka in
manual-assign mode with explicit offsets. `holdfast.Consumer` puts the two behind the surface of
`confluent_kafka.Consumer`.
"""
