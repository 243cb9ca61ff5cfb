"""Connections to Kafka: asyncio, TLS, SASL, metadata, coordinators, and the way from a member to its group.

Nothing is imported here: `from holdfast.net.cluster import Cluster` brings what it needs and no more.
"""
