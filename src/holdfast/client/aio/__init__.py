"""The consumer for asyncio: no librdkafka, no thread of its own, and the surface of confluent-kafka's `AIOConsumer`."""
