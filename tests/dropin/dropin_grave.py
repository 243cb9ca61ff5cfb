"""Programs about what was lost, done twice, dead or stuck once. They are numbered as it was found."""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck
from dropin_happenings import prepare
from dropin_kinds import KINDS
from dropin_partner import Partner
from dropin_run import TRY_S, Run
from dropin_stories import finish, on_brokers, program, ready
from dropin_world import PARTITIONS

from holdfast.model import ErrorCode
from holdfast.wire.api import Api

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
@on_brokers(2)
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
