"""Programs about smaller differences that were found once: answers, errors, odd arguments. Numbered as found."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka as ck
from dropin_happenings import prepare
from dropin_kinds import KINDS
from dropin_partner import Partner
from dropin_run import TRY_S, Run
from dropin_stories import finish, made, program, ready
from dropin_world import BATCH, PARTITIONS

from patience import PATIENCE_S

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
        run.world.until_empty()
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


@program
def p17_a_pattern_that_no_topic_matches(run: Run) -> None:
    """A misspelled pattern: nothing was told, and nothing came."""
    prepare(run)
    run.consumer = KINDS[run.kind](run.config(**{"topic.metadata.propagation.max.ms": 500}))
    run.consumer.subscribe([f"^{run.world.topic}-misspelled.*"])
    run.until(lambda: run.recorder.has("errors") or run.recorder.has("raised"), "to be told", TRY_S)
    run.close()
