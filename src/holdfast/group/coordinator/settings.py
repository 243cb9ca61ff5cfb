"""What a coordinator can be told, under Kafka's names with underscores, and the limits that keep it small."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000.0
DAY_MS = 24 * 60 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Settings of a coordinator. Defaults are Kafka 4.1's where Kafka has the setting."""

    group_initial_rebalance_delay_ms: float = 3_000.0
    """How long the first round of an empty group waits for more members. Each newcomer extends it by as much, up to
    the rebalance timeout. 0 completes it at once."""
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 5_000
    """How many members a group may have. Kafka has no limit by default, but its record of a group, at most 1 MB, holds
    about as many. Ours keeps a round's record and the leader's join answer within what clients accept."""
    offset_metadata_max_bytes: int = 4_096
    """Per committed partition. Kafka's default; it counts characters, we count bytes."""
    offsets_retention_ms: float = 7 * DAY_MS
    offsets_retention_check_interval_ms: float = 10 * MINUTE_MS
    """How often a group looks for expired offsets, and ends if it is empty and has none."""
    new_member_join_timeout_ms: float = 5 * MINUTE_MS
    """How long a join of a new member may be parked. Its client may have given up and joined again as another member;
    without this bound, retries grow the group (KAFKA-7610). 5 minutes is Kafka's constant."""
    max_groups: int = 10_000
    """Every group costs memory and a timer; 10,000 of them stay under 100 MB."""
    max_id_length: int = 249
    """Group, instance and member ids. Kafka's limit for names that may become file names."""
    max_member_metadata_bytes: int = 1_048_576
    """All protocols of one member together. It is stored, and sent to the leader."""
    max_group_metadata_bytes: int = 67_108_864
    """All members together: the leader gets it in one frame, and clients take 100 MB at most (librdkafka's default)."""
    max_groups_bytes: int = 134_217_728
    """About how much memory all groups may take together: members with their metadata, plans, offsets. Beyond that,
    requests that would add to it are refused, and existing groups go on. With 128 MiB of requests in flight and as much
    of waiting answers, a broker stays below 512 MB. A thousand members with 100 KB each fit, or 200,000 offsets."""
    max_pending_members: int = 1_000
    """Ids given out and not used yet. Each lives for a session timeout; a crash loop must not pile them up."""
    max_offsets_per_group: int = 100_000
    """Committed partitions. Clients may commit any partition number, so there must be a bound."""
