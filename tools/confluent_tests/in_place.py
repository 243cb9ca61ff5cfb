"""Puts our consumer in the place of confluent-kafka's, before any test module asks for it: a plugin of pytest's."""

import confluent_kafka

import holdfast

confluent_kafka.Consumer = holdfast.Consumer  # type: ignore[misc, assignment]  # a name is all that they ask for
