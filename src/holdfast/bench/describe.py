"""`holdfast bench describe`: `holdfast groups describe` of a large group beside Kafka's own tool, in one run.

For its broker the group is real: all members have joined, each on its own connection, and own their share, and an
offset of every partition is committed. They have no application, and a session so long that no heartbeats are needed.
The two tools take turns, run as their users run them; the whole process is measured.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import typer

from holdfast.bench.broker_systems import EmbeddedSystem, KafkaSystem, System
from holdfast.bench.output import check_output, report, say
from holdfast.group import messages as m
from holdfast.model import Assignment, ErrorCode, HoldfastError, Membership, Subscription, TopicPartition
from holdfast.model.consumer_protocol import encode_assignment, encode_subscription
from holdfast.net.admin import Admin, NewTopic
from holdfast.net.channel import GroupChannel
from holdfast.net.cluster import Cluster
from holdfast.net.config import client_config
from holdfast.net.errors import NetError
from holdfast.testing.java import java_command, log_args
from holdfast.testing.tools import CONSUMER_GROUPS

GROUP, TOPIC = "large", "large"
SESSION_MS = 1_800_000
"""The longest that Kafka allows; the bench is over by then."""

JOIN_LIMIT_S = 300.0
COMMIT_AT_ONCE = 1_000
CREATED_AT_ONCE = 5_000
"""Partitions of a request. Kafka's controller writes at most 10,000 records for one, and there is one a partition."""

GOAL = 2.0
"""Ours must take less than this many times as long."""

KAFKA_JVM = ("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
"""The JVM flags that kafka-run-class.sh gives a tool."""

FIRST_ROUND_MS = 5_000
"""How long a group's first round waits for another member, so that all are in it and there is no second round."""

BROKERS: dict[str, Callable[[], System]] = {
    "embedded": lambda: EmbeddedSystem(rebalance_delay_ms=FIRST_ROUND_MS),
    "kafka": lambda: KafkaSystem(initial_rebalance_delay_ms=FIRST_ROUND_MS),
}


async def fill(cluster: Cluster, members: int, partitions: int) -> None:
    """Create the topic, let the members join and share it, commit an offset for each partition."""
    admin = Admin(cluster)
    await _create(admin, partitions)
    await _led(cluster, TopicPartition(TOPIC, partitions - 1))
    subscription = encode_subscription(Subscription(topics=(TOPIC,)))
    channels = [GroupChannel(cluster, GROUP) for _ in range(members)]

    async def joined(channel: GroupChannel, membership: Membership) -> m.JoinAnswer:
        answer = await channel.send(
            m.JoinRequest(
                group=GROUP,
                membership=membership,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                protocols=(("range", subscription),),
            ),
            timeout_ms=JOIN_LIMIT_S * 1000,
        )
        assert isinstance(answer, m.JoinAnswer)
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            return await joined(channel, Membership(answer.membership.member_id, -1))
        return answer

    answers = await asyncio.gather(*(joined(channel, Membership("", -1)) for channel in channels))
    if len({answer.membership.generation for answer in answers}) != 1:
        raise HoldfastError(
            "BENCH_FAILED", "Not all members came to the first round.", "Try again on a machine that is less busy."
        )
    await _share(channels, answers, partitions)
    offsets = {TopicPartition(TOPIC, number): m.OffsetEntry(0) for number in range(partitions)}
    names = sorted(offsets)
    for first in range(0, partitions, COMMIT_AT_ONCE):
        some = {at: offsets[at] for at in names[first : first + COMMIT_AT_ONCE]}
        commit = m.CommitRequest(group=GROUP, membership=answers[0].membership, offsets=some)
        told = await channels[0].send(commit)
        assert isinstance(told, m.CommitAnswer) and told.first_error is ErrorCode.NONE, told


async def _create(admin: Admin, partitions: int) -> None:
    topic = NewTopic(name=TOPIC, partitions=min(partitions, CREATED_AT_ONCE), replication_factor=1)
    refused = (await admin.create_topics([topic], timeout_s=120))[TOPIC]
    for total in range(CREATED_AT_ONCE, partitions, CREATED_AT_ONCE):
        if refused is None:
            refused = (await admin.create_partitions({TOPIC: min(partitions, total + CREATED_AT_ONCE)}, timeout_s=120))[
                TOPIC
            ]
    if refused is not None:
        raise refused


async def _led(cluster: Cluster, last: TopicPartition) -> None:
    """Wait until the last partition has a leader. Kafka opens the logs of 10,000 partitions for half a minute."""
    until = time.monotonic() + JOIN_LIMIT_S
    while True:
        try:
            await cluster.leader_of(last)
            return
        except NetError as error:
            if not error.retriable or time.monotonic() > until:
                raise


async def _share(channels: Sequence[GroupChannel], answers: Sequence[m.JoinAnswer], partitions: int) -> None:
    ids = sorted(answer.membership.member_id for answer in answers)
    shares = {
        name: encode_assignment(
            Assignment(partitions=frozenset(TopicPartition(TOPIC, at) for at in range(number, partitions, len(ids))))
        )
        for number, name in enumerate(ids)
    }

    async def synced(channel: GroupChannel, answer: m.JoinAnswer) -> None:
        leads = answer.leader == answer.membership.member_id
        request = m.SyncRequest(
            group=GROUP,
            membership=answer.membership,
            protocol_type="consumer",
            protocol="range",
            assignments=shares if leads else {},
        )
        told = await channel.send(request, timeout_ms=JOIN_LIMIT_S * 1000)
        assert isinstance(told, m.SyncAnswer) and told.error is ErrorCode.NONE, told

    await asyncio.gather(*(synced(channel, answer) for channel, answer in zip(channels, answers, strict=True)))


def timed(command: Sequence[str], rows: int, limit_s: float) -> float:
    """How long it takes to print so many rows; infinite if it takes longer than the limit."""
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return math.inf
    took = time.monotonic() - began
    shown = sum(1 for line in done.stdout.splitlines() if line.startswith(f"{GROUP} "))
    if done.returncode or shown != rows:
        raise HoldfastError(
            "BENCH_FAILED",
            f"{command[0]} ended with {done.returncode} and showed {shown} of {rows} rows: {done.stderr[-500:]}",
            "Read what it said above.",
        )
    return took


def commands(bootstrap: str) -> dict[str, list[str]]:
    program = [sys.executable, "-c", "from holdfast.cli.main import main; main()"]
    theirs = ["--bootstrap-server", bootstrap, "--describe", "--group", GROUP, "--timeout", "120000"]
    return {
        "holdfast": [*program, "groups", "describe", GROUP, "--offsets", "--bootstrap-server", bootstrap],
        "kafka": java_command(CONSUMER_GROUPS, theirs, jvm_args=[*KAFKA_JVM, *log_args("warn")]),
    }


def measure(system: System, members: int, partitions: int, repetitions: int, limit_s: float) -> dict[str, list[float]]:
    settings = {"bootstrap.servers": system.bootstrap, "default.api.timeout.ms": 120_000}
    times: dict[str, list[float]] = {}

    async def run() -> None:
        async with Cluster(client_config(settings)) as cluster:
            await fill(cluster, members, partitions)
            say(f"  {members} members hold {partitions} partitions")
            for number in range(repetitions):
                for name, command in commands(system.bootstrap).items():
                    took = await asyncio.to_thread(timed, command, partitions, limit_s)
                    times.setdefault(name, []).append(took)
                    say(f"  {number + 1}. {name}: {took:.2f} s")

    asyncio.run(run())
    return times


def judged(times: dict[str, list[float]], limit_s: float) -> dict[str, Any]:
    """Medians, their ratio, and whether the goal is reached.

    Kafka's tool asks for the ends of partitions member by member. If it takes longer than the limit, the limit counts
    as its time, and the real ratio is better. Ours has to finish.
    """
    ours, theirs = statistics.median(times["holdfast"]), min(statistics.median(times["kafka"]), limit_s)
    ratio = ours / theirs
    return {
        "holdfast_s": None if math.isinf(ours) else round(ours, 2),
        "kafka_s": round(theirs, 2),
        "kafka_done": not math.isinf(statistics.median(times["kafka"])),
        "ratio": None if math.isinf(ours) else round(ratio, 3),
        "goal": GOAL,
        "reached": ratio < GOAL,
    }


def describe(
    members: int = typer.Option(1_000, min=1, help="Members of the group."),
    partitions: int = typer.Option(10_000, min=1, help="Partitions that they share."),
    repetitions: int = typer.Option(3, min=1, help="How often each tool is run."),
    broker: str = typer.Option("embedded", help="The broker: embedded or kafka."),
    limit_s: float = typer.Option(300.0, "--limit", metavar="S", min=1.0, help="How long one run may take."),
    output: str = typer.Option("table", "--output", "-o", help="table or json."),
) -> None:
    """`groups describe` of a large group beside kafka-consumer-groups.sh, each from start to end.

    Exit code 1: the median of ours is twice theirs or more. Needs Java and `make kafka-jars`.
    """
    check_output(output)
    if broker not in BROKERS:
        raise typer.BadParameter(f"{broker!r}: choose from {', '.join(BROKERS)}.", param_hint="--broker")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs every `finally`, so that the broker is stopped
    system = BROKERS[broker]()
    try:
        say(f"{members} members, {partitions} partitions on {broker}; load {os.getloadavg()[0]:.1f}")
        system.start()
        found = {"broker": broker, "members": members, "partitions": partitions} | judged(
            measure(system, members, partitions, repetitions, limit_s), limit_s
        )
    finally:
        system.close()
    report(found, output, partial(_show, limit_s=limit_s), reached=bool(found["reached"]))


def _show(found: dict[str, Any], *, limit_s: float) -> None:
    said = "reached" if found["reached"] else "MISSED"
    print(f"holdfast groups describe  {found['holdfast_s'] or f'not done in {limit_s:g}'} s")
    print(f"kafka-consumer-groups.sh  {found['kafka_s']} s{'' if found['kafka_done'] else ', and was not done'}")
    print(f"ratio {found['ratio']}, goal less than {GOAL:g}: {said}")
