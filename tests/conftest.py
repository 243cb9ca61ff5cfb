"""Fixtures that the whole suite shares. A missing part (Java, Kafka's jars) fails the test that needs it, loudly."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from holdfast.testing.kafka import RealKafka

# Timings never decide a test: on a busy machine an example may take long and be right.
hypothesis.settings.register_profile("holdfast", deadline=None)
hypothesis.settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def kafka() -> Iterator[RealKafka]:
    """One real Apache Kafka for the whole run. Tests use topics and groups of their own and leave it running."""
    with RealKafka() as running:
        yield running
