"""Groups to look at, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.model import Subscription, TopicPartition
from holdfast.observe.snapshot import DescribedGroup, DescribedMember, GroupSnapshot, PartitionOffsets


def places(*numbers: int, topic: str = "orders") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def member(
    member_id: str,
    *held: int,
    client: str | None = None,
    instance: str | None = None,
    host: str = "/10.0.0.1",
    held_in: int = -1,
    rack: str | None = None,
) -> DescribedMember:
    """`held_in` is the generation that it claims."""
    return DescribedMember(
        member_id=member_id,
        instance_id=instance,
        client_id=member_id if client is None else client,
        host=host,
        rack=rack,
        assigned=places(*held),
        topics=("orders",),
        subscription=Subscription(topics=("orders",), generation=held_in),
    )


def snapshot(
    *members: DescribedMember,
    state: str = "Stable",
    protocol: str = "cooperative-sticky",
    offsets: Mapping[int, tuple[int | None, int | None]] | None = None,
    problems: Sequence[str] = (),
    kind: str = "classic",
    epoch: int = -1,
) -> GroupSnapshot:
    """`offsets` has committed and end of each partition."""
    return GroupSnapshot(
        described=DescribedGroup(
            group="billing",
            state=state,
            protocol_type="consumer",
            protocol=protocol,
            coordinator=("10.0.0.9", 9092),
            members=members,
            kind=kind,
            epoch=epoch,
        ),
        offsets={
            TopicPartition("orders", number): PartitionOffsets(committed=committed, end=end)
            for number, (committed, end) in (offsets or {}).items()
        },
        coordinator_id=1,
        problems=tuple(problems),
    )
