"""Small programs of their own: what was found at fault once, each with its story. They are numbered as it was found.

A program gets a `Run` in a fresh world and leaves notes; what both classes note must be the same.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from dropin_happenings import prepare
from dropin_kinds import KINDS
from dropin_outcome import raised
from dropin_partner import Partner
from dropin_run import TRY_S, Run
from dropin_world import BATCH, PARTITIONS

from holdfast.model import ErrorCode
from holdfast.wire.api import Api
from patience import PATIENCE_S

Program = Callable[[Run], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[f"program/{function.__name__.replace('_', '-')}"] = function
    return function


def ready(run: Run, **settings: Any) -> None:
    """A topic with records, a consumer that subscribes to it, everything read."""
    prepare(run)
    run.open(**settings)
    if not run.closed:
        run.until(run.all_done, "every record")


def finish(run: Run) -> None:
    run.close()
    if run.partner is not None:
        run.partner.leave()
    if run.world.embedded:
        run.world.broker.faults.clear()
    run.look()
    run.sum_up()


def made(run: Run, **settings: Any) -> None:
    """Whether such a configuration makes a consumer."""
    name = " ".join(f"{key}={getattr(value, '__name__', repr(value))}" for key, value in settings.items())
    try:
        consumer = KINDS[run.kind](run.config(**settings))
    except BaseException as error:
        run.note("made", f"{name} raises {raised(error)}")
    else:
        consumer.close()
        run.note("made", f"{name} ok")


# Lost or unread


@program
def p01_assign_by_hand_commits_at_close(run: Run) -> None:
    """assign() by hand never auto-committed: neither while running nor at close."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config())
    run.consumer.assign([ck.TopicPartition(run.world.topic, number) for number in range(PARTITIONS)])
    run.until(run.all_done, "every record")
    finish(run)


@program
def p02_portable_on_assign_keeps_what_is_kept(run: Run) -> None:
    """assign() in on_assign replaced all that was kept, under cooperative: owned, says the group, and read by nobody.

    A portable program tries assign() and, where the protocol is cooperative, incremental_assign().
    """
    prepare(run)
    run.consumer = KINDS[run.kind](run.config())

    def on_assign(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        try:
            consumer.assign(partitions)
        except ck.KafkaException:
            consumer.incremental_assign(partitions)

    run.consumer.subscribe([run.world.topic], on_assign=on_assign)
    run.until(run.all_done, "every record")
    run.partner = Partner(run.kind, run.config(), run.topics, run.recorder)
    run.until(lambda: run.partner is not None and run.partner.held == PARTITIONS // 2, "the partner's share")
    run.more()
    run.partner.leave()
    run.until(lambda: len(run.consumer.assignment()) == PARTITIONS, "to have everything back")
    run.more()
    finish(run)


@program
def p03_old_names_of_auto_commit(run: Run) -> None:
    """auto.commit.enable=False did not switch auto commit off."""
    ready(run, **{"auto.commit.enable": False})
    finish(run)


@program
def p03_default_topic_config(run: Run) -> None:
    """default.topic.config was ignored: a program that says there where to start read nothing, or everything."""
    prepare(run)
    settings = run.config(**{"default.topic.config": {"auto.offset.reset": "earliest"}})
    del settings["auto.offset.reset"]
    run.consumer = KINDS[run.kind](settings)
    run.subscribe()
    run.until(run.all_done, "every record", TRY_S)
    finish(run)


# Done twice


@program
def p05_system_exit_in_on_revoke_gives_the_partition_away(run: Run) -> None:
    """A BaseException in on_revoke left the partition being read beside its new owner."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config())

    def on_revoke(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        raise SystemExit(3)

    run.consumer.subscribe([run.world.topic], on_revoke=on_revoke)
    run.until(run.all_done, "every record")
    run.partner = Partner(run.kind, run.config(), run.topics, run.recorder)
    run.until(lambda: run.partner is not None and run.partner.held == PARTITIONS // 2, "the partner's share")
    run.more()
    run.partner.rest()
    finish(run)


@program
def p06_stored_in_on_revoke_is_committed(run: Run) -> None:
    """store_offsets() in on_revoke came too late: the commit had been made before."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config(**{"enable.auto.offset.store": False}))

    def on_revoke(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        consumer.store_offsets(offsets=[ck.TopicPartition(each.topic, each.partition, 5) for each in partitions])

    run.consumer.subscribe([run.world.topic], on_revoke=on_revoke)
    run.until(run.all_done, "every record")
    finish(run)


@program
def p07_close_tries_its_commit_again(run: Run) -> None:
    """One COORDINATOR_LOAD_IN_PROGRESS at close, and nothing was committed."""
    ready(run)
    run.world.broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
    finish(run)


@program
def p07_a_refused_auto_commit_is_tried_again(run: Run) -> None:
    """A refused auto commit was forgotten until the next record."""
    run.world.broker.faults.error(Api.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    ready(run, **{"auto.commit.interval.ms": 100})
    wanted = dict.fromkeys(run.world.produced, 5)
    run.until(lambda: {key: entry[0] for key, entry in run.world.committed().items()} == wanted, "a commit", TRY_S)
    run.note_committed()
    finish(run)


@program
def p08_a_stranger_among_the_assigned_does_not_spoil_the_commit(run: Run) -> None:
    """One assigned partition that is not the group's failed the whole auto commit."""
    other = f"{run.world.topic}-b"
    run.world.create(other, 1)
    ready(run)
    run.world.produce(other, 1)
    run.call("incremental_assign", lambda: run.consumer.incremental_assign([ck.TopicPartition(other, 0, 0)]))
    run.until(run.all_done, "every record of the stranger")
    finish(run)


@program
def p09_one_look_that_misses_the_topic_costs_nothing(run: Run) -> None:
    """One look at the cluster that missed a topic lost its partitions without a commit."""
    ready(run)
    topic = run.world.topic
    fault = run.world.broker.faults.change(
        Api.METADATA,
        lambda body: {**body, "topics": [each for each in body["topics"] if each["name"] != topic]},
        times=1,
        when=lambda exchange: exchange.frame.client_id == "subject",
    )
    run.until(lambda: fault.left == 0, "a look at the cluster")
    run.more()
    finish(run)


# Dead or stuck


@program
def p10_after_a_group_error_subscribing_again_works(run: Run) -> None:
    """After a group error the consumer was dead, and subscribing again did nothing."""
    run.world.broker.faults.error(Api.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
    prepare(run)
    run.open()
    run.until(lambda: run.recorder.has("errors") or run.recorder.has("raised"), "to be told", TRY_S)
    run.call("subscribe", lambda: run.consumer.subscribe([run.world.topic]))
    run.until(run.all_done, "every record")
    finish(run)


@program
def p11_assigned_by_hand_a_moved_coordinator_is_found(run: Run) -> None:
    """Without a subscription nobody looked for a coordinator that had moved."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config(**{"enable.auto.commit": False}))
    run.consumer.assign([ck.TopicPartition(run.world.topic, number) for number in range(PARTITIONS)])
    run.until(run.all_done, "every record")
    run.call("commit", lambda: run.consumer.commit(asynchronous=False))
    run.world.broker.move_coordinator(1)
    run.more()
    run.call("commit", lambda: run.consumer.commit(asynchronous=False))
    finish(run)


@program
def p12_interrupted_in_on_assign_it_goes_on(run: Run) -> None:
    """Ctrl-C in a callback: no record afterwards, close took 10 s, no LeaveGroup."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config())

    def on_assign(consumer: Any, partitions: list[ck.TopicPartition]) -> None:
        raise KeyboardInterrupt

    run.consumer.subscribe([run.world.topic], on_assign=on_assign)
    run.until(run.all_done, "every record")
    finish(run)


# Smaller


@program
def p14_committed_without_a_limit(run: Run) -> None:
    """committed(timeout=-1) timed out at once."""
    ready(run)
    partitions = [ck.TopicPartition(run.world.topic, 0)]
    found = run.call("committed", lambda: run.consumer.committed(partitions, timeout=-1))
    run.note("answers", f"committed {[each.offset for each in found or []]}")
    finish(run)


@program
def p14_a_second_commit_has_nothing_to_commit(run: Run) -> None:
    """A second commit() with nothing new said nothing."""
    ready(run, **{"enable.auto.commit": False})
    for _ in range(2):
        run.call("commit", lambda: run.consumer.commit(asynchronous=False))
    finish(run)


@program
def p14_commit_after_seeking_back(run: Run) -> None:
    """commit() after seeking back committed where the seek went, before anything was read there."""
    ready(run, **{"enable.auto.commit": False})
    run.call("commit", lambda: run.consumer.commit(asynchronous=False))
    run.call("seek", lambda: run.consumer.seek(ck.TopicPartition(run.world.topic, 0, 1)))
    run.call("commit", lambda: run.consumer.commit(asynchronous=False))
    run.note_committed()
    run.close()


@program
def p14_too_long_between_two_polls(run: Run) -> None:
    """No message for _MAX_POLL_EXCEEDED: the application did not hear that it had lost its partitions."""
    ready(run, **{"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000, "enable.auto.commit": False})
    if not run.closed:
        time.sleep(7)
        run.until(lambda: run.recorder.has("errors") or run.recorder.has("raised"), "to be told", TRY_S)
        run.until(lambda: all(len(got) == 2 * BATCH for got in run.recorder.done().values()), "every record again")
    finish(run)


@program
def p14_an_invalid_pattern(run: Run) -> None:
    """An invalid pattern."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config())
    run.call("subscribe", lambda: run.consumer.subscribe(["^orders-[a-"]))
    run.call("subscribe", lambda: run.consumer.subscribe([f"^{run.world.topic[:4]}[[:alpha:]]+-[[:digit:]]+$"]))
    run.until(run.all_done, "every record", TRY_S)
    run.close()


@program
def p14_bad_configurations(run: Run) -> None:
    """A bad configuration was not a KafkaException."""
    made(run, **{"no.such.key": 1})
    made(run, **{"auto.offset.reset": "sometimes"})
    made(run, **{"session.timeout.ms": "soon"})
    made(run, **{"session.timeout.ms": 0})
    made(run, **{"enable.auto.commit": "perhaps"})
    made(run, **{"partition.assignment.strategy": "by-weather"})
    made(run, **{"group.protocol": "modern"})
    made(run, on_commit=7)
    made(run, error_cb="print")


@program
def p15_configurations_that_librdkafka_takes(run: Run) -> None:
    """Checks of ours that refused what librdkafka takes."""
    made(run, **{"bootstrap.servers": None})
    made(run, **{"group.id": 7})
    made(run, **{"heartbeat.interval.ms": 3_000, "session.timeout.ms": 2_000})
    made(run, **{"max.poll.interval.ms": 30_000, "session.timeout.ms": 45_000})
    made(run, **{"session.timeout.ms": "6000"})
    made(run, **{"enable.auto.commit": "false"})
    made(run, **{"client.rack": None})


@program
def p15_without_a_first_token_there_is_no_consumer(run: Run) -> None:
    """An oauth_cb that raises came out of the constructor as SystemError: our error_cb, called while librdkafka was
    destroyed, wiped out the exception that told why."""

    def no_token(_argument: str) -> tuple[str, float]:
        raise ValueError("no token to be had")

    made(run, **{"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": no_token})


@program
def p16_commit_of_what_is_not_assigned(run: Run) -> None:
    """commit(offsets=...) of a partition that is not assigned was refused; confluent commits it."""
    other = f"{run.world.topic}-b"
    run.world.create(other, 1)
    ready(run, **{"enable.auto.commit": False})
    wanted = [ck.TopicPartition(other, 0, 3)]
    run.call("commit", lambda: run.consumer.commit(offsets=wanted, asynchronous=False))
    run.note_committed()
    run.close()


@program
def p16_partitions_that_do_not_exist(run: Run) -> None:
    """Errors for unknown partitions differed."""
    ready(run, **{"enable.auto.commit": False})
    strange = [ck.TopicPartition(run.world.topic, 77, 1)]
    consumer = run.consumer
    run.call("seek", lambda: consumer.seek(strange[0]))
    run.call("pause", lambda: consumer.pause(strange))
    run.call("resume", lambda: consumer.resume(strange))
    run.call("store_offsets", lambda: consumer.store_offsets(offsets=strange))
    run.call("incremental_unassign", lambda: consumer.incremental_unassign(strange))
    found = run.call("position", lambda: consumer.position(strange))
    run.note("answers", f"position {[(each.offset, each.error is not None) for each in found or []]}")
    run.call("commit", lambda: consumer.commit(offsets=strange, asynchronous=False))
    run.call("incremental_assign", lambda: consumer.incremental_assign(consumer.assignment()))
    run.close()


@program
def p16_odd_arguments(run: Run) -> None:
    """None values, other types, duplicates."""
    prepare(run)
    consumer = run.consumer = KINDS[run.kind](run.config())
    run.call("subscribe(None)", lambda: consumer.subscribe(None))
    run.call("subscribe(str)", lambda: consumer.subscribe(run.world.topic))
    run.call("subscribe(bytes)", lambda: consumer.subscribe([run.world.topic.encode()]))
    run.call("subscribe([])", lambda: consumer.subscribe([]))
    run.call("subscribe(tuple)", lambda: consumer.subscribe((run.world.topic,)))
    run.call("on_assign=7", lambda: consumer.subscribe([run.world.topic], on_assign=7))
    run.call("consume(-1)", lambda: consumer.consume(-1))
    run.call("assign(None)", lambda: consumer.assign(None))
    run.call("commit(both)", lambda: consumer.commit(message=None, offsets=7))
    run.call("store_offsets()", consumer.store_offsets)
    run.call("seek(7)", lambda: consumer.seek(7))
    run.call("duplicates", lambda: consumer.subscribe([run.world.topic, run.world.topic]))
    run.call("subscribe", lambda: consumer.subscribe([run.world.topic]))
    run.until(run.all_done, "every record")
    run.close()


@program
def p16_after_close(run: Run) -> None:
    """What a closed consumer says."""
    ready(run)
    run.close()
    consumer = run.consumer
    nothing = [ck.TopicPartition(run.world.topic, 0, 1)]
    run.call("poll", lambda: consumer.poll(0))
    run.call("consume", lambda: consumer.consume(1, 0))
    run.call("subscribe", lambda: consumer.subscribe([run.world.topic]))
    run.call("unsubscribe", consumer.unsubscribe)
    run.call("assign", lambda: consumer.assign(nothing))
    run.call("assignment", consumer.assignment)
    run.call("position", lambda: consumer.position(nothing))
    run.call("seek", lambda: consumer.seek(nothing[0]))
    run.call("commit", lambda: consumer.commit(offsets=nothing))
    run.call("committed", lambda: consumer.committed(nothing))
    run.call("pause", lambda: consumer.pause(nothing))
    run.call("memberid", consumer.memberid)
    run.call("list_topics", consumer.list_topics)
    run.call("close", consumer.close)


@program
def p16_before_anything(run: Run) -> None:
    """What a consumer without subscription or assignment says."""
    prepare(run)
    consumer = run.consumer = KINDS[run.kind](run.config())
    nothing = [ck.TopicPartition(run.world.topic, 0, 1)]
    run.call("poll", lambda: consumer.poll(0))
    run.note("answers", f"assignment {run.call('assignment', consumer.assignment)}")
    run.call("commit", lambda: consumer.commit(asynchronous=False))
    run.call("commit later", lambda: consumer.commit(asynchronous=True))
    run.call("seek", lambda: consumer.seek(nothing[0]))
    run.call("pause", lambda: consumer.pause(nothing))
    run.call("store_offsets", lambda: consumer.store_offsets(offsets=nothing))
    run.call("incremental_unassign", lambda: consumer.incremental_unassign(nothing))
    run.call("unassign", consumer.unassign)
    run.call("unsubscribe", consumer.unsubscribe)
    run.note("answers", f"memberid {run.call('memberid', consumer.memberid)!r}")
    run.close()


@program
def p16_joins_a_group_on_range_without_a_strategy(run: Run) -> None:
    """A rolling deploy that changes the import and nothing else was refused: the group ran librdkafka's default."""
    prepare(run)
    settings = {key: value for key, value in run.config().items() if key != "partition.assignment.strategy"}
    run.partner = Partner("confluent", settings, run.topics, run.recorder)
    deadline = time.monotonic() + PATIENCE_S
    while not run.all_done() and time.monotonic() < deadline:
        time.sleep(0.02)
    run.consumer = KINDS[run.kind](settings)
    run.consumer.subscribe([run.world.topic])
    run.until(lambda: len(run.consumer.assignment()) == PARTITIONS // 2, "its share")
    run.more()
    run.partner.rest()
    finish(run)


@program
def p16_a_missing_topic_is_not_made(run: Run) -> None:
    """allow.auto.create.topics: false is the default, and a subscription makes no topic."""
    run.consumer = KINDS[run.kind](run.config(**{"topic.metadata.propagation.max.ms": 500}))
    run.consumer.subscribe([run.world.topic])
    run.until(lambda: run.recorder.has("errors") or run.recorder.has("raised"), "to be told", TRY_S)
    run.note("answers", f"topics {len(run.world.broker.topics.names())}")
    run.close()


# In a process of its own


CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may have ignored it
sys.path.insert(0, {here!r})
from dropin_kinds import KINDS
consumer = KINDS[{kind!r}]({config!r})
consumer.subscribe([{topic!r}])
while len(consumer.assignment()) < {partitions}:
    consumer.poll(0.05)
print("ready", flush=True)
{rest}
"""


def _child(run: Run, rest: str) -> subprocess.Popen[str]:
    """A process with a member that has everything, and then does the rest."""
    text = CHILD.format(
        here=str(Path(__file__).parent),
        kind=run.kind,
        config=run.config(),
        topic=run.world.topic,
        partitions=PARTITIONS,
        rest=rest,
    )
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "ready\n"
    return child


@program
def p16_a_process_that_exits_without_close_leaves(run: Run) -> None:
    """Who ends without close() should not hold up the group until its session is over."""
    run.world.create(run.world.topic)
    child = _child(run, "")
    child.wait(60)
    run.note("members", str(run.world.members()))


@program
def p16_ctrl_c_interrupts_a_poll_without_end(run: Run) -> None:
    """poll() without a limit and no record: Ctrl-C ends the program."""
    run.world.create(run.world.topic)
    child = _child(run, "consumer.poll()")
    time.sleep(0.5)  # not before it polls; if it should, the signal ends it all the same
    child.send_signal(signal.SIGINT)
    try:
        child.wait(TRY_S)
    except subprocess.TimeoutExpired:
        run.note("ended", "Ctrl-C does not interrupt poll()")
        child.kill()
        child.wait(60)


@program
def p17_commit_after_unsubscribe(run: Run) -> None:
    """commit() behind unsubscribe() works with confluent's class, which gives nothing up before the next poll."""
    ready(run, **{"enable.auto.commit": False})
    run.call("unsubscribe", run.consumer.unsubscribe)
    run.call("commit", lambda: run.consumer.commit(asynchronous=False))
    run.note_committed()
    run.close()
