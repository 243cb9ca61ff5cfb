"""The embedded broker: Kafka's wire protocol over `storage` and the pure coordinator, in one process.

    server, connection   sockets, frames, limits           apis/       one file per API
    exchange             one request in work               groups      drives the coordinator
    state                what the APIs share               security/   TLS, SASL, users, rules
    waiting              fetches that wait for records     faults      what tests make go wrong

Importing this package imports nothing else. It must not import the client, Spark, numpy or confluent-kafka: a broker is
ready in under a second because it loads only what a request needs.
"""
