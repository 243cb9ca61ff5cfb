"""Random worlds, many of them: a seed gives a whole configuration, printed first, and its history is checked.

    holdfast sim --swarm --seeds 1000 --jobs 2        on a violation: exit code 1 and the command that replays it
    holdfast sim --world 4711                         that world, step by step

Each world has a safety phase under faults and a liveness phase on a healed world. The draw favours trouble: short
timeouts, faults close together, members of several clients in one group.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context
from random import Random
from typing import Protocol

from holdfast.group.note_budget import NOTES_BYTES
from holdfast.model import HoldfastError
from holdfast.sim.config import Happening, MemberPlan, WorldConfig
from holdfast.sim.network import NetworkProfile
from holdfast.sim.world import World

CHUNK = 8
"""Worlds per task of a worker: enough to hide a task's overhead, few enough for visible progress."""

MAX_SEEDS, MAX_JOBS = 10_000_000, 256

COOPERATIVE, EAGER, BOTH = ("cooperative-sticky",), ("range",), ("cooperative-sticky", "range")
DEFAULT, OLD = ("default",), ("range", "roundrobin")
"""A consumer without a configured strategy: ours, and librdkafka's."""
FITTING_IN = (*OLD, *COOPERATIVE)
MIXES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (COOPERATIVE,),
    (COOPERATIVE,),
    (COOPERATIVE,),
    (("sticky",),),
    (EAGER, ("range", "roundrobin")),
    (BOTH, EAGER),
    (BOTH, COOPERATIVE),
    (DEFAULT,),
    (DEFAULT, OLD),
    (DEFAULT, OLD),
    (DEFAULT, BOTH),
    (DEFAULT, COOPERATIVE),
)
"""Which assignors the members of a world list: mostly the same; half migrated, in each of KIP-429's two bounces; and
members that adapt to the group beside members that don't."""

NOTES = (NOTES_BYTES, NOTES_BYTES, 250, 100, 20)
"""What notes may take: everything; short ones with a few peers; flags; next to nothing."""

LARGE_SHARE = 0.2
"""The share of worlds that behave like large groups, where members read on for a while what a round took from them."""

MEMBER_FAULTS = (
    "crash", "crash", "bounce", "bounce", "restart", "restart", "hang", "hang", "freeze", "freeze", "leave", "drain",
    "cut", "mute", "deafen", "subscribe", "unsubscribe", "enforce", "slow", "twin",
)  # fmt: skip
WORLD_FAULTS = ("join", "join", "grow", "create", "delete", "broker-crash", "broker-crash")


def random_world(seed: int) -> WorldConfig:
    """The world of a seed."""
    random = Random(seed)
    count = random.choice((1, 2, 2, 3, 3, 4, 5, 6))
    topics = tuple((name, random.randint(1, 6)) for name in ("orders", "pay", "log")[: random.choice((1, 1, 2, 3))])
    mix = random.choice(MIXES)
    static_share = random.choice((0.0, 0.0, 0.5, 1.0))
    foreign_share = random.choice((0.0, 0.0, 0.3, 1.0))
    quiet = random.random() < 0.15
    duration = random.uniform(15_000, 45_000)
    names = [f"c{number}" for number in range(count)]
    session = random.choice((6_000, 6_000, 10_000))
    members = tuple(
        _random_member(random, name, session, mix, topics, static=static_share, foreign=foreign_share) for name in names
    )
    happenings = tuple(_random_happenings(random, names, topics, duration))
    members = _storing_late(seed, _with_retried_commits(seed, members))
    members = _with_slow_syncs(seed, _committing_themselves(seed, members))
    members, happenings = _with_watchdogs(seed, members, happenings)
    happenings = _with_failing_assignors(seed, names, happenings)
    world = WorldConfig(
        seed=seed,
        members=members,
        topics=topics,
        happenings=happenings,
        duration_ms=duration,
        network=_random_network(random, quiet=quiet),
        initial_delay_ms=random.choice((0.0, 200.0, 3_000.0)),
        append_ms=random.choice((0.0, 5.0)),
        request_timeout_ms=random.choice((1_000.0, 5_000.0)),
        metadata_ms=random.choice((1_000.0, 5_000.0)),
        crash_on_append=0.0 if quiet else random.choice((0.0, 0.0, 0.0, 0.03)),
        heals=True,
        notes_bytes=random.choice(NOTES),
        refuses=0.0 if quiet else random.choice((0.0, 0.0, 0.02, 0.2)),
    )
    return _as_in_a_large_group(random, world) if random.random() < LARGE_SHARE else world


def _as_in_a_large_group(random: Random, world: WorldConfig) -> WorldConfig:
    """Only our own members, and rounds slow enough for faults to hit a member that reads on: joins just before them."""
    before = [max(500.0, happening.at_ms - random.uniform(0.0, 1_000.0)) for happening in world.happenings[:4]]
    anywhere = [random.uniform(3_000, world.duration_ms) for _ in range(2)]
    joins = tuple(Happening(at_ms=round(at, 1), kind="join") for at in (*before, *anywhere))
    return replace(
        world,
        members=tuple(replace(m, assignors=COOPERATIVE, eager_assignors=(), foreign=False) for m in world.members),
        happenings=world.happenings + joins,
        notes_bytes=NOTES_BYTES,
        short_notes=True,
        plan_ms=random.choice((1.0, 50.0, 400.0)),
    )


def _random_member(
    random: Random,
    name: str,
    session: int,
    mix: tuple[tuple[str, ...], ...],
    topics: tuple[tuple[str, int], ...],
    *,
    static: float,
    foreign: float,
) -> MemberPlan:
    max_poll = random.choice((6_000, 8_000, 12_000))
    wanted = [topic for topic, _ in topics]
    assignors = random.choice(mix)
    after = random.choice((0.0, 2_000.0, 10_000.0, None)) if assignors is DEFAULT else None
    return MemberPlan(
        name=name,
        assignors=COOPERATIVE if assignors is DEFAULT else assignors,
        eager_assignors=FITTING_IN if assignors is DEFAULT else (),
        cooperative_after_ms=after,
        topics=tuple(wanted if random.random() < 0.8 else wanted[:1]),
        instance_id=f"i-{name}" if random.random() < static else None,
        start_ms=random.choice((0.0, random.uniform(0, 6_000))),
        session_timeout_ms=session,
        heartbeat_interval_ms=random.choice((1_000, 2_000)),
        max_poll_interval_ms=max_poll,
        commit_interval_ms=random.choice((1_000.0, 2_500.0)),
        poll_ms=max_poll / 3.0,
        listener_ms=random.choice((0.0, 1.0, 50.0, 500.0)),
        batch_ms=random.choice((0.0, 0.0, 100.0)),
        listener_raises=random.random() < 0.1,
        commit_on_revoke=random.random() < 0.85,
        foreign=random.random() < foreign or (DEFAULT in mix and assignors is OLD),
        instant_rejoin=random.random() < 0.9,
        hand_over_offsets=random.random() < 0.9,
        responsive_ms=random.choice((None, max_poll / 2.0)),
        pokes=random.random() < 0.3,
    )


def _with_retried_commits(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """In every fourth world without static members: commits at a revoke that a join may overtake. Drawn apart too."""
    static = any(plan.instance_id is not None for plan in members)
    if static or Random(f"retried commits of {seed}").random() >= 0.25:
        return members
    return tuple(replace(plan, commits_ahead=False) for plan in members)


def _storing_late(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """In every fourth world: applications that store how far they are only in their listener. Drawn apart too."""
    late = Random(f"storing late in {seed}").random() < 0.25
    return tuple(replace(plan, stores_in_listener=True) for plan in members) if late else members


def _committing_themselves(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """In every fourth world: whoever leaves commits to the application commits in its listener. Drawn apart too."""
    if Random(f"committing themselves in {seed}").random() >= 0.25:
        return members
    return tuple(plan if plan.commit_on_revoke else replace(plan, commits_in_listener=True) for plan in members)


def _with_slow_syncs(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """In every sixth world: one member is slower than the others' next join. Drawn apart too."""
    random = Random(f"slow syncs of {seed}")
    if random.random() >= 1 / 6:
        return members
    slow = random.randrange(len(members))
    sync_ms = random.uniform(20.0, 500.0)
    return tuple(replace(plan, sync_ms=sync_ms) if n == slow else plan for n, plan in enumerate(members))


def _with_watchdogs(
    seed: int, members: tuple[MemberPlan, ...], happenings: tuple[Happening, ...]
) -> tuple[tuple[MemberPlan, ...], tuple[Happening, ...]]:
    """In every third world: watchdogs for dynamic members, machines that die, and batches that may outlast
    max.poll.interval.ms. Drawn from a separate random source, so that the other worlds stay as they were."""
    random = Random(f"watchdogs of {seed}")
    if random.random() >= 0.33:
        return members, happenings
    watched = tuple(
        replace(
            plan,
            watchdog=plan.instance_id is None and not plan.foreign,
            batch_ms=plan.max_poll_interval_ms * random.uniform(0.4, 2.5) if random.random() < 0.2 else plan.batch_ms,
        )
        for plan in members
    )
    done = tuple(
        replace(each, kind="machine-crash") if each.kind == "crash" and random.random() < 0.3 else each
        for each in happenings
    )
    # Some members get long batches instead of a slow listener.
    return watched, tuple(
        replace(each, kind="batch", lasts_ms=random.uniform(600.0, 20_000.0))
        if each.kind == "slow" and random.random() < 0.5
        else each
        for each in done
    )


def _with_failing_assignors(seed: int, names: list[str], happenings: tuple[Happening, ...]) -> tuple[Happening, ...]:
    """In every fifth world: assignors that fail for a while, mostly when something happens and the group rebalances.
    Drawn from a separate random source, so that the other worlds stay as they were."""
    random = Random(f"failing assignors of {seed}")
    if random.random() >= 0.2:
        return happenings
    moments = [happening.at_ms for happening in happenings] or [random.uniform(1_000, 15_000)]
    fails = []
    for _ in range(random.randint(1, 3)):
        at = round(max(500.0, random.choice(moments) + random.uniform(-300.0, 700.0)), 1)
        lasts = round(random.choice((random.uniform(50, 500), random.uniform(500, 4_000))))
        fails += [Happening(at_ms=at, kind="misplan", target=name, lasts_ms=lasts) for name in names]
    return (*happenings, *fails)


def _random_network(random: Random, *, quiet: bool) -> NetworkProfile:
    if quiet:
        return NetworkProfile(delay_ms=random.choice((0.1, 0.5)))
    return NetworkProfile(
        delay_ms=random.choice((0.1, 0.5, 5.0)),
        jitter_ms=random.choice((0.0, 1.0, 20.0, 200.0)),
        loss=random.choice((0.0, 0.0, 0.005, 0.03)),
        duplicate=random.choice((0.0, 0.0, 0.02)),
    )


def _random_happenings(
    random: Random, names: list[str], topics: tuple[tuple[str, int], ...], duration: float
) -> Iterator[Happening]:
    """Clustered, because it is the faults that coincide which hurt."""
    centre = random.uniform(2_000, duration)
    for _ in range(random.choice((random.randint(0, 4), random.randint(4, 9), random.randint(9, 20)))):
        if random.random() < 0.4:
            centre = random.uniform(1_000, duration)
        at = round(min(duration - 1.0, max(500.0, random.gauss(centre, 1_000))), 1)
        if random.random() < 0.75:
            yield _random_member_fault(random, random.choice(names), at)
        else:
            yield _random_world_fault(random, topics, at)


def _random_member_fault(random: Random, name: str, at: float) -> Happening:
    kind = random.choice(MEMBER_FAULTS)
    lasts = 0.0
    if kind in ("hang", "freeze", "cut", "mute", "deafen", "restart", "bounce", "unsubscribe"):
        lasts = round(
            random.choice((random.uniform(10, 500), random.uniform(500, 5_000), random.uniform(5_000, 20_000)))
        )
    elif kind == "slow":
        lasts = random.choice((500.0, 3_000.0))
    return Happening(at_ms=at, kind=kind, target=name, lasts_ms=lasts, amount=random.randint(0, 1))


def _random_world_fault(random: Random, topics: tuple[tuple[str, int], ...], at: float) -> Happening:
    kind = random.choice(WORLD_FAULTS)
    topic = random.choice(topics)[0]
    if kind == "grow":
        return Happening(at_ms=at, kind=kind, target=topic, amount=random.randint(2, 9))
    if kind == "create":
        return Happening(at_ms=at, kind=kind, target="late", amount=random.randint(1, 3))
    if kind == "delete":
        return Happening(at_ms=at, kind=kind, target=topics[-1][0])
    lasts = round(random.uniform(50, 4_000)) if kind == "broker-crash" else 0.0
    return Happening(at_ms=at, kind=kind, lasts_ms=lasts)


@dataclass(frozen=True, slots=True)
class Finding:
    """A world in which an invariant broke."""

    seed: int
    what: str


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of a batch of worlds."""

    worlds: int
    calls: int
    rounds: int
    findings: tuple[Finding, ...]


def run_worlds(first: int, count: int) -> Tally:
    """Run the worlds of these seeds, up to the first finding."""
    calls = rounds = 0
    for number in range(count):
        seed = first + number
        try:
            result = World(random_world(seed), keep_records=False).run()
        except Exception as error:  # noqa: BLE001 — whatever a world raises is a finding with a seed, not a crash of the swarm
            return Tally(number + 1, calls, rounds, (Finding(seed, f"{type(error).__name__}: {error}"),))
        calls += result.calls
        rounds += result.rounds
        if result.violations:
            return Tally(number + 1, calls, rounds, (Finding(seed, str(result.violations[0])),))
    return Tally(count, calls, rounds, ())


class Show(Protocol):
    def __call__(self, text: str, *, final: bool) -> None: ...


def run_swarm(*, first: int, count: int, jobs: int, as_json: bool, show: Show) -> int:
    """Run many worlds in several processes. The exit code: 0 if all is well, 1 with the first finding."""
    if not (1 <= count <= MAX_SEEDS and 1 <= jobs <= MAX_JOBS and first >= 0):
        raise HoldfastError(
            "BAD_SWARM", f"{count} worlds in {jobs} jobs can't be run.", f"Use 1 to {MAX_SEEDS} and 1 to {MAX_JOBS}."
        )
    began = time.monotonic()
    done = calls = rounds = 0
    finding: Finding | None = None
    for tally in _tallies(first, count, jobs):
        done += tally.worlds
        calls += tally.calls
        rounds += tally.rounds
        for each in tally.findings:
            finding = each if finding is None or each.seed < finding.seed else finding
        spent = time.monotonic() - began
        show(f"{done}/{count} worlds · {rounds} rounds · {done / spent:.0f} worlds/s", final=False)
    spent = time.monotonic() - began
    if as_json:
        show(
            json.dumps(
                {
                    "worlds": done,
                    "rounds": rounds,
                    "calls": calls,
                    "seconds": round(spent, 3),
                    "finding": None if finding is None else {"seed": finding.seed, "what": finding.what},
                }
            ),
            final=True,
        )
    elif finding is None:
        show(
            f"{done} worlds, {rounds} rounds, {spent:.1f} s, {done / spent:.0f} worlds/s: every invariant held",
            final=True,
        )
    else:
        show(f"world {finding.seed}: {finding.what}\nreplay it: holdfast sim --world {finding.seed}", final=True)
    return 0 if finding is None else 1


def _tallies(first: int, count: int, jobs: int) -> Iterator[Tally]:
    """In chunks, as they come; after a finding no new chunk is begun."""
    chunks = iter([(first + start, min(CHUNK, count - start)) for start in range(0, count, CHUNK)])
    if jobs == 1:
        for chunk in chunks:
            tally = run_worlds(*chunk)
            yield tally
            if tally.findings:
                return
        return
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("forkserver")) as pool:
        running: set[Future[Tally]] = set()
        stopped = False
        while True:
            while not stopped and len(running) < 2 * jobs:
                chunk = next(chunks, (0, 0))
                if chunk[1] == 0:
                    stopped = True
                    break
                running.add(pool.submit(run_worlds, *chunk))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                tally = future.result()
                stopped = stopped or bool(tally.findings)
                yield tally
