"""Which broker sent librdkafka how much, learnt from its statistics.

librdkafka names the broker of a record nowhere else. So a consumer that has a rack turns its statistics on, unless the
application has set their interval itself; 0 is such an interval, and keeps them off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.net.fetched_bytes import FetchedBytes

EVERY_MS = 10_000
"""How often, where the application does not say: Prometheus seldom looks more often. Statistics of a consumer that is
not polled wait in librdkafka's memory, so they should be few."""

BROKERS = '"brokers":'
"""They stand before the topics, which are nearly all of the text in a consumer with many partitions."""


class BrokerBytes:
    """Adds what each broker has sent since the last statistics."""

    def __init__(self, fetched: FetchedBytes, racks: Callable[[], Mapping[int, str | None]]) -> None:
        """`racks` are the brokers' racks, as far as they are known now."""
        self._fetched = fetched
        self._racks = racks
        self._before: dict[str, int] = {}
        """The last count of each broker, by its name: librdkafka counts from zero again for one that it has forgotten
        and finds again."""

    def with_our_stats_cb(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings, with a stats_cb that counts too. What librdkafka would refuse is left to it."""
        given, theirs = config.get("statistics.interval.ms"), config.get("stats_cb")
        refused = "stats_cb" in config and not callable(theirs)
        if self._fetched.rack is None or refused or (given is not None and not _positive(given)):
            return dict(config)
        if given is None:
            return {**config, "statistics.interval.ms": EVERY_MS, "stats_cb": self.read}

        def stats_cb(text: str) -> None:
            self.read(text)
            if callable(theirs):
                theirs(text)

        return {**config, "stats_cb": stats_cb}

    def read(self, text: str) -> None:
        racks = self._racks()
        for name, broker in _brokers(text).items():
            node, total = broker.get("nodeid", -1), broker.get("rxbytes", 0)
            if node < 0:  # not a broker that is read from: a bootstrap address, or a group's coordinator
                continue
            before = self._before.get(name, 0)
            self._before[name] = total
            self._fetched.add(total - before if total >= before else total, racks.get(node))


def _brokers(text: str) -> dict[str, Any]:
    at = text.rfind(BROKERS)  # the last: a client.id may hold anything, and stands before it
    if at < 0:
        return {}
    found, _ = json.JSONDecoder().raw_decode(text, text.index("{", at))
    assert isinstance(found, dict)
    return found


def _positive(interval: Any) -> bool:
    try:
        return int(interval) > 0
    except (TypeError, ValueError):
        return False
