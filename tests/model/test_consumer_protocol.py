"""The consumer protocol's bytes, checked against kio's codecs and against damage."""

from __future__ import annotations

import io
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import Assignment, HoldfastError, Subscription, TopicPartition, by_topic
from holdfast.model.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PARTITIONS = st.frozensets(st.builds(TopicPartition, NAMES, st.integers(-(2**31), 2**31 - 1)), max_size=12)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(NAMES, unique=True, max_size=5).map(sorted).map(tuple),
    owned=PARTITIONS,
    generation=st.integers(-1, 2**31 - 1),
    user_data=st.none() | st.binary(max_size=20),
    rack=st.none() | NAMES,
)
ASSIGNMENTS = st.builds(Assignment, partitions=PARTITIONS, user_data=st.none() | st.binary(max_size=20))


def kio_bytes(message: str, version: int, **fields: object) -> bytes:
    """kio's encoding of the same content, behind the int16 version that Kafka puts in front."""
    from kio.serial import entity_writer

    module = import_module(f"kio.schema.{message}.v{version}.data")
    cls = getattr(module, "".join(word.capitalize() for word in message.split("_")))
    fields = {name: value(module) if callable(value) else value for name, value in fields.items()}
    buffer = io.BytesIO()
    entity_writer(cls)(buffer, cls(**fields))
    return version.to_bytes(2, "big") + buffer.getvalue()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@given(subscription=SUBSCRIPTIONS)
def test_a_subscription_has_the_same_bytes_as_kio_writes(version: int, subscription: Subscription) -> None:
    fields: dict[str, object] = {"topics": subscription.topics, "user_data": subscription.user_data}
    if version >= 1:
        fields["owned_partitions"] = lambda module: tuple(
            module.TopicPartition(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(subscription.owned).items()
        )
    if version >= 2:
        fields["generation_id"] = subscription.generation
    if version >= 3:
        fields["rack_id"] = subscription.rack
    assert encode_subscription(subscription, version) == kio_bytes("consumer_protocol_subscription", version, **fields)


@given(assignment=ASSIGNMENTS)
def test_an_assignment_has_the_same_bytes_as_kio_writes(assignment: Assignment) -> None:
    theirs = kio_bytes(
        "consumer_protocol_assignment",
        0,
        user_data=assignment.user_data,
        assigned_partitions=lambda module: tuple(
            module.TopicPartition(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(assignment.partitions).items()
        ),
    )
    assert encode_assignment(assignment) == theirs


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@given(subscription=SUBSCRIPTIONS)
def test_a_subscription_survives_the_round_trip_but_for_fields_its_version_lacks(
    version: int, subscription: Subscription
) -> None:
    back = decode_subscription(encode_subscription(subscription, version), instance_id="i")
    assert back.topics == subscription.topics
    assert back.user_data == subscription.user_data
    assert back.owned == (subscription.owned if version >= 1 else frozenset())
    assert back.generation == (subscription.generation if version >= 2 else -1)
    assert back.rack == (subscription.rack if version >= 3 else None)
    assert (back.version, back.instance_id) == (version, "i")


@given(assignment=ASSIGNMENTS)
def test_an_assignment_survives_the_round_trip(assignment: Assignment) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_no_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == Assignment()


@given(subscription=SUBSCRIPTIONS, tail=st.binary(max_size=10), version=st.integers(4, 32_767))
def test_a_newer_version_is_read_as_ours_and_its_tail_ignored(
    subscription: Subscription, tail: bytes, version: int
) -> None:
    data = version.to_bytes(2, "big") + encode_subscription(subscription)[2:] + tail
    assert decode_subscription(data) == subscription


def test_fields_missing_at_the_end_get_their_defaults() -> None:
    """Some clients raised the version of their subscription to 1 without sending owned partitions."""
    bare = encode_subscription(Subscription(topics=("t",)), version=0)
    for version in (1, 2, 3):
        back = decode_subscription(version.to_bytes(2, "big") + bare[2:])
        assert (back.topics, back.owned, back.generation, back.rack) == (("t",), frozenset(), -1, None)


@given(subscription=SUBSCRIPTIONS, data=st.data())
def test_a_cut_subscription_raises_or_reads_as_defaults_and_never_crashes(
    subscription: Subscription, data: st.DataObject
) -> None:
    whole = encode_subscription(subscription)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        back = decode_subscription(cut)
    except HoldfastError as error:
        assert error.code == "MALFORMED_CONSUMER_PROTOCOL"
    else:
        assert back.topics == subscription.topics


@given(st.binary(max_size=60))
def test_noise_raises_our_error_or_is_read_and_never_crashes(noise: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(noise)
        except HoldfastError as error:
            assert error.code == "MALFORMED_CONSUMER_PROTOCOL"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",  # version -1
        b"\x00\x00\xff\xff\xff\xff",  # null topics
        b"\x00\x00\x7f\xff\xff\xff",  # two thousand million topics in no bytes
        b"\x00\x00\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00",  # a null topic
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\xff\xff\xff\xff",  # not UTF-8
        b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xfe",  # user data of -2 bytes
        b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff",  # huge partition list
    ],
)
def test_a_malformed_subscription_is_refused_before_anything_is_allocated(data: bytes) -> None:
    with pytest.raises(HoldfastError) as caught:
        decode_subscription(data)
    assert caught.value.code == "MALFORMED_CONSUMER_PROTOCOL"


def test_what_cannot_be_written_is_refused_with_its_reason() -> None:
    for subscription, code in (
        (Subscription(topics=("\ud800",)), "UNENCODABLE_NAME"),
        (Subscription(topics=("x" * 40_000,)), "NAME_TOO_LONG"),
        (Subscription(topics=(), owned=frozenset({TopicPartition("t", 2**31)})), "PARTITION_OUT_OF_RANGE"),
    ):
        with pytest.raises(HoldfastError) as caught:
            encode_subscription(subscription)
        assert caught.value.code == code
    with pytest.raises(HoldfastError) as caught:
        encode_subscription(Subscription(topics=()), version=4)
    assert caught.value.code == "UNSUPPORTED_CONSUMER_PROTOCOL"


def test_equal_subscriptions_are_equal_bytes_whatever_the_order_of_their_topics() -> None:
    a = encode_subscription(Subscription(topics=("b", "a", "b")))
    assert a == encode_subscription(Subscription(topics=("a", "b")))
