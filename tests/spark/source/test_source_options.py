"""Every option: what is read, what is refused, and the sentence that goes with it."""

from __future__ import annotations

import json

import pytest

from holdfast.model import HoldfastError, TopicPartition
from holdfast.spark.batch import ranges
from holdfast.spark.checking import check_at_load, within_start
from holdfast.spark.offsets import BatchOffset
from holdfast.spark.options import parse, wants_headers
from holdfast.spark.places import COMMITTED, EARLIEST, LATEST, Place
from holdfast.spark.planning import ranges_up_to, tasks
from holdfast.spark.session import SETTINGS, configure
from holdfast.spark.source import HoldfastSource, StreamReader

BASE = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "orders"}


def test_names_are_case_insensitive_and_kafkas_keys_lose_their_prefix() -> None:
    read = parse(
        {"KAFKA.bootstrap.servers": "h:1", "kafka.GROUP.id": "g", "Subscribe": "b, a", "MAXOFFSETSPERTRIGGER": "7"},
        streaming=True,
    )
    assert read.kafka == {"bootstrap.servers": "h:1", "group.id": "g"}
    assert read.topics == ("a", "b")
    assert read.max_offsets == 7
    assert (read.starting, read.fail_on_data_loss, read.include_headers) == (LATEST, True, False)


def test_what_belongs_to_sparks_own_source_alone_does_no_harm() -> None:
    assert parse(BASE | {"groupIdPrefix": "x", "kafkaConsumer.pollTimeoutMs": "1"}, streaming=True).topics == (
        "orders",
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": ""}, "subscribe is missing"),
        ({"assign": '{"orders": [0]}'}, "subscribe and assign are given together"),
        ({"subscribe": "", "assign": "[]"}, "assign is"),
        ({"subscribe": "", "assign": '{"orders": "12"}'}, "assign is"),
        ({"subscribe": "", "assign": '{"orders": [-1]}'}, "assign is"),
        ({"subscribe": "", "subscribePattern": "("}, "not a regular expression"),
        ({"subscribe": "^orders"}, "subscribePattern"),
        ({"kafka.group.id": ""}, "kafka.group.id is missing"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"startingOffsets": "sometimes"}, "startingOffsets is 'sometimes'"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "from -2 on"),
        ({"startingOffsets": '{"orders": {"0": 23.9}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"orders": {"0": 1}, "oders": {"1": 5}}'}, "startingOffsets names oders-1, which is not"),
        ({"startingOffsetsByTimestamp": '{"oders": {"1": 5}}'}, "names oders-1, which is not read"),
        ({"maxOffsetsPerTrigger": "10²"}, "Give a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": str(2**63)}, "fits into 64 bits"),
        ({"startingOffsets": f'{{"orders": {{"0": {2**63}}}}}'}, "startingOffsets is"),
        ({"subscribe": "", "subscribePattern": "orders-[a-z&&[^b]]"}, "not a regular expression"),
        ({"kafka.max.partition.fetch.bytes": "4MB"}, "Give a number of bytes"),
        ({"kafka.max.partition.fetch.bytes": "0"}, "Give a number of bytes"),
        ({"kafka.auto.offset.reset": "earliest"}, "it would begin at latest all the same. Say startingOffsets instead"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "No batch could satisfy both"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        ({"includeHeaders": "perhaps"}, "Choose true or false"),
        ({"kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "Choose error or latest"),
        (
            {"startingOfsets": "earliest"},
            "startingofsets is not an option of this source. Did you mean startingOffsets?",
        ),
        ({"group.id": "g"}, "Did you mean kafka.group.id?"),
        ({"colour": "red"}, "The options are subscribe, subscribePattern"),
        (
            {"kafka.sesion.timeout.ms": "1"},
            "kafka.sesion.timeout.ms is not a setting of a Kafka consumer. Did you mean kafka.",
        ),
        ({"kafka.colour": "red"}, "Check its spelling in Kafka's documentation"),
        ({"kafka.value.deserializer": "org.x.Y"}, "cast(value as string)"),
        ({"kafka.enable.auto.commit": "true"}, "committed when a batch is done"),
        ({"kafka.enable.auto.commit": "1"}, "committed when a batch is done"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batches"),
    ],
)
def test_a_wrong_option_is_told_before_anything_starts(options: dict[str, str], said: str) -> None:
    with pytest.raises(HoldfastError) as raised:
        parse(BASE | options, streaming=True)
    assert said in str(raised.value)
    assert raised.value.code == "INVALID_OPTION"


def test_what_kafka_and_librdkafka_know_is_taken() -> None:
    """A job that comes from Spark's own source may carry any of Java's keys; a login may use librdkafka's."""
    given = {"kafka.fetch.min.bytes": "1", "kafka.max.poll.records": "5", "kafka.sasl.username": "u"}
    given |= {"kafka.enable.auto.commit": "false", "kafka.ssl.truststore.location": "/t", "kafka.holdfast.poke": "true"}
    assert parse(BASE | given, streaming=True).kafka["fetch.min.bytes"] == "1"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "Did you mean startingOffsets?"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        ({"kafka.session.timeout.ms": "ten"}, "option kafka.session.timeout.ms is 'ten'"),
        ({"kafka.holdfast.pokes": "true"}, "Did you mean kafka.holdfast.poke?"),
        ({"kafka.holdfast.standy": "1"}, "Did you mean kafka.holdfast.standby?"),
        ({"kafka.holdfast.followers": "1"}, "kafka.holdfast.stateful"),
        ({"kafka.partition.assignment.strategy": "fair"}, "fair"),
    ],
)
@pytest.mark.parametrize("without", [(), ("kafka.group.id",)])
def test_every_option_is_checked_when_the_frame_is_loaded(
    options: dict[str, str], said: str, without: tuple[str, ...]
) -> None:
    """Symptom: a mistyped option was told when the query ran, by line 20 of a Java trace. Cause: only `includeHeaders`
    was looked at before. Rule: `.load()` refuses what neither a stream nor a batch could run with."""
    base = {key: value for key, value in BASE.items() if key not in without}
    with pytest.raises(HoldfastError, match="INVALID_OPTION") as raised:
        HoldfastSource(base | options).schema()
    assert said in str(raised.value)


def test_what_only_a_stream_or_only_a_batch_minds_is_not_told_when_the_frame_is_loaded() -> None:
    check_at_load({key: value for key, value in BASE.items() if key != "kafka.group.id"})
    check_at_load(BASE | {"startingOffsets": "latest"})
    check_at_load(BASE | {"endingOffsets": "latest"})


def test_a_start_without_a_broker_is_told_soon_and_before_anything_is_rehearsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: a wrong address was told after a minute. Rule: ten seconds at the start, unless a limit was given."""
    assert within_start({})["default.api.timeout.ms"] == "10000"
    assert within_start({"default.api.timeout.ms": "7"})["default.api.timeout.ms"] == "7"
    monkeypatch.setattr("holdfast.spark.checking.REACH_MS", 200)
    reader = StreamReader(BASE | {"kafka.holdfast.stateful": "none"})
    with pytest.raises(HoldfastError, match=r"LOOKUP_TIMED_OUT.*127\.0\.0\.1:1"):
        reader.latestOffset(BatchOffset().to_json(), reader.getDefaultReadLimit())
    with pytest.raises(HoldfastError, match="LOOKUP_TIMED_OUT"):
        ranges(parse(BASE, streaming=False))


def test_a_topic_is_not_written_into() -> None:
    """Symptom: `.write.format("holdfast")` ended in a Java trace with PySpark's NotImplementedError in it."""
    source = HoldfastSource(BASE)
    for write in (source.writer, source.streamWriter):
        with pytest.raises(HoldfastError, match=r'SOURCE_READS_ONLY: .*format\("kafka"\)'):
            write(None, False)


def test_a_batch_needs_no_group_and_must_not_be_empty_by_its_options() -> None:
    base = {k: v for k, v in BASE.items() if k != "kafka.group.id"}
    assert parse(base, streaming=False).starting == EARLIEST
    for wrong in ({"startingOffsets": "latest"}, {"endingOffsets": "earliest"}, {"startingOffsets": "committed"}):
        with pytest.raises(HoldfastError, match="INVALID_OPTION"):
            parse(base | wrong, streaming=False)
    assert parse(BASE | {"startingOffsets": "committed"}, streaming=False).starting == COMMITTED


def test_places_by_word_by_offset_and_by_time() -> None:
    where = TopicPartition("orders", 0)
    named = parse(BASE | {"startingOffsets": '{"orders": {"0": 23, "1": -2, "2": -1}}'}, streaming=True).starting
    assert named.of(where) == Place("offset", 23)
    assert named.of(TopicPartition("orders", 1)) == EARLIEST.default
    assert named.of(TopicPartition("orders", 2)) == LATEST.default
    with pytest.raises(HoldfastError, match="OFFSET_NOT_GIVEN"):
        named.of(TopicPartition("orders", 3))
    timed = parse(BASE | {"startingTimestamp": "1000", "startingOffsets": "earliest"}, streaming=True).starting
    assert timed.of(where) == Place("time", 1000, False)
    late = {"startingOffsetsByTimestamp": '{"orders": {"0": 5}}', "startingOffsetsByTimestampStrategy": "latest"}
    assert parse(BASE | late, streaming=True).starting.of(where) == Place("time", 5, True)


def test_a_duration_is_read_as_spark_writes_it() -> None:
    for text, seconds in (("500ms", 0.5), ("30s", 30.0), ("15m", 900.0), ("2 min", 120.0), ("1h", 3600.0)):
        assert parse(BASE | {"maxTriggerDelay": text}, streaming=True).max_delay_s == seconds


def test_the_schema_depends_on_one_option_alone() -> None:
    assert wants_headers({"INCLUDEHEADERS": "True"})
    assert not wants_headers({})


# -- how much a batch takes, and in how many tasks


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in range(count)]


def test_a_limit_is_shared_in_proportion_and_kept_to_the_record() -> None:
    a, b, c = partitions(3)
    taken = ranges_up_to({a: 0, b: 0, c: 5}, {a: 900, b: 100, c: 5}, 100)
    assert taken == {a: (0, 90), b: (0, 10)}


def test_a_limit_below_the_number_of_partitions_is_kept_too_and_starves_none() -> None:
    names = partitions(5)
    positions = dict.fromkeys(names, 0)
    ends = dict.fromkeys(names, 10)
    rounds = 0
    while any(positions[p] < ends[p] for p in names):
        taken = ranges_up_to(positions, ends, 2)
        assert sum(end - start for start, end in taken.values()) == 2
        positions |= {p: end for p, (_, end) in taken.items()}
        rounds += 1
    assert rounds == 25


def test_small_ranges_ride_together_and_large_ones_alone() -> None:
    small = dict.fromkeys(partitions(12), (0, 10))
    assert [len(pieces) for pieces in tasks(small)] == [12]
    large = dict.fromkeys(partitions(6), (0, 1000000))
    assert [len(pieces) for pieces in tasks(large)] == [1] * 6
    assert tasks({}) == []


def test_tasks_are_cut_when_the_options_ask_for_it() -> None:
    (where,) = partitions(1)
    assert tasks({where: (0, 10)}, at_least=3) == [[(where, 0, 3)], [(where, 3, 6)], [(where, 6, 10)]]
    whole = [piece for pieces in tasks({where: (5, 105)}, at_most_records=30) for piece in pieces]
    assert whole[0][1] == 5
    assert whole[-1][2] == 105
    assert all(end - start <= 30 for _, start, end in whole)
    assert [end for _, _, end in whole[:-1]] == [start for _, start, _ in whole[1:]]


# -- the session


class Builder:
    """As much of SparkSession.Builder as is asked for."""

    def __init__(self) -> None:
        self.set: dict[str, str] = {}

    def config(self, key: str, value: str) -> Builder:
        self.set[key] = value
        return self


def test_every_setting_has_a_reason_and_a_price_and_can_be_skipped() -> None:
    builder = Builder()
    assert configure(builder) is builder  # type: ignore[arg-type]  # a stand-in
    assert builder.set == {setting.key: setting.value for setting in SETTINGS}
    assert all(setting.why and setting.costs for setting in SETTINGS)
    less = Builder()
    configure(less, skip=[SETTINGS[0].key])  # type: ignore[arg-type]  # a stand-in
    assert SETTINGS[0].key not in less.set
    with pytest.raises(HoldfastError, match="UNKNOWN_SETTING"):
        configure(Builder(), skip=["spark.sql.typo"])  # type: ignore[arg-type]  # a stand-in


def test_options_survive_the_way_to_an_executor() -> None:
    import pickle

    read = parse(BASE | {"startingOffsets": json.dumps({"orders": {"0": 1}})}, streaming=True)
    assert pickle.loads(pickle.dumps(read)) == read
