"""Kafka's APIs as we speak them: number, schema name, first flexible version, and the versions we know.

Rules. `versions` is what the embedded broker can offer and what the client asks for at most; if kio knows a version
that we don't offer, a comment says why. A test compares every line with kio's schemas.

This module must not import kio: a broker looks in here for every request.
"""

from __future__ import annotations

from enum import Enum

NEVER_FLEXIBLE = 1 << 15
"""Larger than any version: the API has no version with compact types and tagged fields (KIP-482)."""


class Api(Enum):
    """One API. `Api.of(11)` finds JOIN_GROUP."""

    PRODUCE = (0, "produce", 3, 13, 9)
    FETCH = (1, "fetch", 4, 18, 12)
    LIST_OFFSETS = (2, "list_offsets", 1, 10, 6)  # 11 only adds a special offset of tiered storage
    METADATA = (3, "metadata", 0, 13, 9)
    OFFSET_COMMIT = (8, "offset_commit", 2, 9, 8)  # 10 names topics by id alone, which the group's values don't know
    OFFSET_FETCH = (9, "offset_fetch", 1, 9, 6)  # 10: as for OFFSET_COMMIT
    FIND_COORDINATOR = (10, "find_coordinator", 0, 6, 3)
    JOIN_GROUP = (11, "join_group", 0, 9, 6)
    HEARTBEAT = (12, "heartbeat", 0, 4, 4)
    LEAVE_GROUP = (13, "leave_group", 0, 5, 4)
    SYNC_GROUP = (14, "sync_group", 0, 5, 4)
    DESCRIBE_GROUPS = (15, "describe_groups", 0, 6, 5)
    LIST_GROUPS = (16, "list_groups", 0, 5, 3)
    SASL_HANDSHAKE = (17, "sasl_handshake", 0, 1, NEVER_FLEXIBLE)
    API_VERSIONS = (18, "api_versions", 0, 4, 3)
    CREATE_TOPICS = (19, "create_topics", 2, 7, 5)
    DELETE_TOPICS = (20, "delete_topics", 1, 6, 4)
    DELETE_RECORDS = (21, "delete_records", 0, 2, 2)
    INIT_PRODUCER_ID = (22, "init_producer_id", 0, 5, 2)  # 6 is two-phase commit (KIP-939)
    OFFSET_FOR_LEADER_EPOCH = (23, "offset_for_leader_epoch", 2, 4, 4)
    DESCRIBE_ACLS = (29, "describe_acls", 1, 3, 2)
    CREATE_ACLS = (30, "create_acls", 1, 3, 2)
    DELETE_ACLS = (31, "delete_acls", 1, 3, 2)
    DESCRIBE_CONFIGS = (32, "describe_configs", 1, 4, 4)
    ALTER_CONFIGS = (33, "alter_configs", 0, 2, 2)
    SASL_AUTHENTICATE = (36, "sasl_authenticate", 0, 2, 2)
    CREATE_PARTITIONS = (37, "create_partitions", 0, 3, 2)
    DELETE_GROUPS = (42, "delete_groups", 0, 2, 2)
    INCREMENTAL_ALTER_CONFIGS = (44, "incremental_alter_configs", 0, 1, 1)
    OFFSET_DELETE = (47, "offset_delete", 0, 0, NEVER_FLEXIBLE)
    DESCRIBE_CLUSTER = (60, "describe_cluster", 0, 2, 0)
    CONSUMER_GROUP_DESCRIBE = (69, "consumer_group_describe", 0, 1, 0)

    def __init__(self, key: int, schema: str, lowest: int, highest: int, flexible_from: int) -> None:
        self.key = key
        self.schema = schema
        """The name of its folder in kio."""
        self.lowest = lowest
        self.highest = highest
        self.flexible_from = flexible_from

    @property
    def versions(self) -> range:
        return range(self.lowest, self.highest + 1)

    def flexible(self, version: int) -> bool:
        """Whether this version has compact types and tagged fields."""
        return version >= self.flexible_from

    @classmethod
    def of(cls, key: int) -> Api | None:
        """The API with this number, None if we don't know it."""
        return _BY_KEY.get(key)


_BY_KEY = {api.key: api for api in Api}


def common_version(api: Api, lowest: int, highest: int) -> int | None:
    """The highest version that both we and a peer offering `lowest` to `highest` know; None if there is none."""
    best = min(api.highest, highest)
    return best if best >= max(api.lowest, lowest) else None
