"""holdfast: Kafka consumer groups that don't stop."""

__version__ = "0.1.0"
