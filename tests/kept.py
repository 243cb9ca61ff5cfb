"""Topics whose records stay, however old their timestamps are."""

KEPT = {"retention.ms": "-1"}
"""For topics with fixed timestamps. Retention looks at these, as in Kafka: records "from 1970" are deleted by its first
look, five minutes after the broker's start, and shared brokers live that long."""
