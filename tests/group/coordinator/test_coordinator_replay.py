"""What is written down, how it reads back, and what a coordinator that starts from its log makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coordinator_world import T0, T1, World, subscription
from hypothesis import given
from hypothesis import strategies as st

from holdfast.group.coordinator import (
    Coordinator,
    CoordinatorSettings,
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
    Persist,
    Record,
    Reply,
    State,
    decode_record,
    encode_record,
    records_of,
)
from holdfast.group.messages import CommitRequest, JoinAnswer, JoinRequest, OffsetEntry
from holdfast.model import ErrorCode, HoldfastError, Membership, TopicPartition

NONE = ErrorCode.NONE
names = st.text(max_size=12)
int32 = st.integers(-(2**31), 2**31 - 1)
moments = st.floats(allow_nan=False, allow_infinity=False)
partitions = st.builds(TopicPartition, names, int32)
members = st.builds(
    MemberRecord,
    member_id=names,
    instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    session_timeout_ms=int32,
    rebalance_timeout_ms=int32,
    protocols=st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3).map(tuple),
    assignment=st.binary(max_size=20),
)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(GroupTombstone, names),
    st.builds(OffsetTombstone, names, partitions),
    st.builds(
        OffsetRecord,
        group=names,
        partition=partitions,
        offset=st.integers(-(2**63), 2**63 - 1),
        leader_epoch=int32,
        metadata=names,
        committed_at_ms=moments,
    ),
    st.builds(
        GroupRecord,
        group=names,
        state=st.sampled_from([State.EMPTY, State.COMPLETING, State.STABLE]),
        generation=int32,
        protocol_type=st.none() | names,
        protocol=st.none() | names,
        leader=names,
        since_ms=moments,
        members=st.lists(members, max_size=3).map(tuple),
    ),
)


def replayed(*log: Record) -> World:
    return World(log=list(log))


class TestBytes:
    @given(records)
    def test_every_record_reads_back(self, record: Record) -> None:
        key, value = encode_record(record)
        assert decode_record(key, value) == record
        assert (value is None) == isinstance(record, GroupTombstone | OffsetTombstone)

    @given(records, records)
    def test_records_that_replace_each_other_have_one_key(self, one: Record, other: Record) -> None:
        def identity(record: Record) -> tuple[object, ...]:
            return record.group, getattr(record, "partition", None)

        assert (encode_record(one)[0] == encode_record(other)[0]) == (identity(one) == identity(other))

    @given(records, st.data())
    def test_damaged_bytes_are_refused_and_nothing_else_happens(self, record: Record, data: st.DataObject) -> None:
        key, value = encode_record(record)
        whole = key + (value or b"")
        at = data.draw(st.integers(0, len(whole) - 1))
        damaged = bytearray(whole)
        damaged[at] ^= data.draw(st.integers(1, 255))
        cut = data.draw(st.integers(0, len(whole)))
        for bad in (bytes(damaged), whole[:cut]):
            try:
                read = decode_record(bad[: len(key)], None if value is None else bad[len(key) :])
            except HoldfastError as error:
                assert error.code == "UNREADABLE_GROUP_RECORD"
            else:
                assert isinstance(read, Record.__args__)  # a flipped bit may make another valid record

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (b"", None),
            (b"\x00\x02\x01\x00\x00\x00\x01g", None),
            (b"\x00\x01\x09\x00\x00\x00\x01g", None),
            (b"\x00\x01\x01\xff\xff\xff\xff", None),
            (b"\x00\x01\x01\x00\x00\x00\x01\xff", None),
            (b"\x00\x01\x01\x00\x00\x00\x01g!", None),
            (b"\x00\x01\x01\x7f\xff\xff\xffg", None),
            (b"\x00\x01\x01\x00\x00\x00\x01g", b"\x00\x02\x01\x00\x00\x00\x01"),
            (b"\x00\x01\x01\x00\x00\x00\x01g", b"\x00\x01\x07\x00\x00\x00\x01"),
        ],
    )
    def test_what_a_newer_version_or_a_stranger_wrote_is_refused(self, key: bytes, value: bytes | None) -> None:
        with pytest.raises(HoldfastError, match="UNREADABLE_GROUP_RECORD"):
            decode_record(key, value)

    def test_the_bytes_of_version_1_never_change(self) -> None:
        """Logs of today must be readable for years: these bytes were written by the first version."""
        offset = OffsetRecord(group="g", partition=T1, offset=7, leader_epoch=2, metadata="m", committed_at_ms=1.5)
        assert [part.hex() for part in encode_record(offset) if part] == [
            "0001020000000167000000066f726465727300000001",
            "0001000000000000000700000002000000016d3ff8000000000000",
        ]
        member = MemberRecord(
            member_id="a-1",
            instance_id="i",
            client_id="a",
            client_host="h",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=9_000,
            protocols=(("range", b"\x01"),),
            assignment=b"\x02",
        )
        group = GroupRecord(
            group="g",
            state=State.STABLE,
            generation=3,
            protocol_type="consumer",
            protocol="range",
            leader="a-1",
            since_ms=2.0,
            members=(member,),
        )
        assert [part.hex() for part in encode_record(group) if part] == [
            "0001010000000167",
            "0001030000000300000008636f6e73756d65720000000572616e676500000003612d3140000000000000000000000100000003"
            "612d310000000169000000016100000001680000177000002328000000010000000572616e676500000001010000000102",
        ]


class TestReplay:
    def test_a_stable_group_goes_on_as_if_nothing_had_happened(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        world.commit(a, {T0: 3})
        after = world.restarted()
        assert after.coordinator.records() == world.coordinator.records()
        assert after.coordinator.describe("g") == world.coordinator.describe("g")
        assert after.beat(b) is NONE
        assert after.commit(a, {T0: 4}) is NONE
        assert after.synced(after.sync(b)).assignment == b.member_id.encode()

    def test_members_get_fresh_sessions(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.now += 3_600_000  # the coordinator was down for an hour
        after = world.restarted()
        after.pass_time(44_999)
        assert after.beat(a) is NONE
        after.pass_time(45_000)
        assert after.state is State.EMPTY

    def test_a_round_whose_generation_was_out_goes_on_with_its_syncs(self) -> None:
        world = World()
        a, b = world.stable("a", "b")
        world.join(a.member_id)
        world.join(b.member_id)
        now = [Membership(each.member_id, world.generation) for each in (a, b)]
        after = world.restarted()
        assert after.state is State.COMPLETING
        waiting = after.sync(now[1])
        after.sync(now[0], {b.member_id: b"b"})
        assert after.synced(waiting).assignment == b"b"

    def test_and_its_sync_barrier_has_a_deadline_again(self) -> None:
        world = World()
        (a,) = world.stable("a", session_timeout_ms=600_000, rebalance_timeout_ms=10_000)
        world.join(a.member_id, session_timeout_ms=600_000, rebalance_timeout_ms=10_000)
        after = world.restarted()
        after.pass_time(10_000)
        assert after.state is State.EMPTY

    def test_a_generation_is_never_given_out_twice(self) -> None:
        """A crash between the join's answer and the plan: the number was used again, for other members."""
        world = World()
        (a,) = world.stable("a")
        first = world.joined(world.join(a.member_id)).membership
        after = world.restarted()
        second = after.joined(after.join(a.member_id, protocols=(("range", subscription("new")),))).membership
        assert second.generation > first.generation

    def test_answers_come_after_what_they_promise(self) -> None:
        """At every step: cut the log where the answer stood; what was answered is in it."""
        world = World()
        (a,) = world.stable("a")
        token, seen = object(), list(world.log)
        request = JoinRequest(group="g", membership=a, protocols=(("range", subscription()),))
        for effect in world.coordinator.handle(token, request, world.now):
            if isinstance(effect, Persist):
                seen += effect.records
            if isinstance(effect, Reply):
                assert isinstance(effect.answer, JoinAnswer)
                assert replayed(*seen).generation == effect.answer.membership.generation

    def test_who_was_joining_is_not_written_and_joins_again(self) -> None:
        world = World()
        (a,) = world.stable("a")
        world.join(client_id="b")
        after = world.restarted()
        assert after.state is State.STABLE
        assert after.member_ids == [a.member_id]

    def test_the_eldest_is_still_the_next_to_lead(self) -> None:
        world = World()
        z, y, x = world.stable("z", "y", "x")
        after = world.restarted()
        after.leave(z.member_id)
        after.join(x.member_id)
        assert after.joined(after.join(y.member_id)).leader == y.member_id

    def test_tombstones_for_unknown_entries_are_accepted(self) -> None:
        """edge C70 K-17306: loading failed on a tombstone whose record compaction had taken away."""
        world = replayed(GroupTombstone("g"), OffsetTombstone("g", T0), OffsetTombstone("h", T1))
        assert world.coordinator.list_groups() == []
        assert world.coordinator.next_deadline() is None

    def test_offsets_before_the_group_record_are_kept(self) -> None:
        """edge C70 K-20254: compaction keeps the newest group record, which may come after offsets of before."""
        live = World()
        (a,) = live.stable("a")
        group = live.log[-1]
        offset = OffsetRecord(group="g", partition=T0, offset=9)
        world = replayed(offset, group)
        assert world.committed() == {T0: 9}
        assert world.beat(a) is NONE

    def test_an_offset_outlives_a_tombstone_of_its_group_unless_it_has_its_own(self) -> None:
        """edge C70 K-20254"""
        offset = OffsetRecord(group="g", partition=T0, offset=9)
        live = World()
        live.stable("a")
        world = replayed(*live.log, offset, GroupTombstone("g"))
        assert world.committed() == {T0: 9}
        assert world.state is State.EMPTY
        assert (
            replayed(*live.log, offset, GroupTombstone("g"), OffsetTombstone("g", T0)).coordinator.list_groups() == []
        )

    def test_a_log_with_gaps_gives_what_is_left_of_it(self) -> None:
        """edge C69 K-9065: any subset of superseded records may be missing."""
        world = World()
        a, _ = world.stable("a", "b")
        for offset in range(5):
            world.commit(a, {T0: offset})
        newest: dict[bytes, Record] = {encode_record(record)[0]: record for record in world.log}
        for skip in range(len(world.log)):
            kept = [r for at, r in enumerate(world.log) if at != skip or newest[encode_record(r)[0]] is r]
            assert replayed(*kept).coordinator.records() == world.coordinator.records()

    def test_large_groups_read_back(self) -> None:
        """edge C69 K-7286: a record larger than the read buffer stopped the loading."""
        everybody = tuple(
            MemberRecord(
                member_id=f"m{number:04}",
                session_timeout_ms=45_000,
                rebalance_timeout_ms=300_000,
                protocols=(("range", b"x" * 20_000),),
                assignment=b"y" * 1_000,
            )
            for number in range(1_000)
        )
        record = GroupRecord(
            group="g",
            state=State.STABLE,
            generation=9,
            protocol_type="consumer",
            protocol="range",
            leader="m0000",
            members=everybody,
        )
        key, value = encode_record(record)
        assert value is not None
        assert len(value) > 20_000_000
        world = replayed(decode_record(key, value))
        assert len(world.member_ids) == 1_000
        assert world.beat(Membership("m0500", 9)) is NONE

    def test_a_failure_half_way_leaves_nothing_half_loaded(self) -> None:
        """edge C69 K-16030: the retry found the leavings of the first try."""
        live = World()
        live.stable("a")

        def broken() -> Iterator[Record]:
            yield from live.log
            yield decode_record(b"\x00\x09", None)

        settings = CoordinatorSettings()
        with pytest.raises(HoldfastError, match="UNREADABLE"):
            Coordinator.replay(broken(), 0.0, settings=settings, new_member_id=str)
        again = Coordinator.replay(live.log, 0.0, settings=settings, new_member_id=str)
        assert again.records() == live.coordinator.records()

    def test_the_shortest_log_gives_the_same_state(self) -> None:
        world = World()
        a, b = world.stable("a", "~b")
        world.commit(a, {T0: 1, T1: 2})
        short = replayed(*world.coordinator.records())
        assert short.coordinator.records() == world.coordinator.records()
        assert len(short.log) == 3
        assert short.beat(b, instance_id="b") is NONE

    def test_records_of_takes_the_records_out_of_effects(self) -> None:
        world = World()
        effects = world.coordinator.handle(1, CommitRequest(group="g", offsets={T0: OffsetEntry(1)}), 0.0)
        assert [type(record) for record in records_of(effects)] == [OffsetRecord]
