"""Runs confluent-kafka-python's tests twice, on its Consumer and on ours, and compares test by test.

    cd CHECKOUT && python run.py [unit|integration|verify|asyncio …]

Where a cluster is needed, one of Apache Kafka is started on loopback (`holdfast.testing.kafka`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from limited import Outcomes, limited_pytest

from holdfast.testing.kafka import RealKafka

HERE = Path(__file__).parent

UNIT = ("Consumer", "log", "misc", "oauth_cb", "Wakeable", "threads")
"""The unit tests that make a consumer."""

INTEGRATION = ("consumer", "producer/test_transactions.py", "serialization")
NOT_OURS = "not producer and not Producer and not upgrade_downgrade"
"""Producers are confluent-kafka's own; the new group protocol is refused with what to do (docs/consumer.md)."""

VERIFY = (
    "verify_consumer",
    "verify_batch_consumer",
    "verify_consumer_performance",
    "verify_batch_consumer_performance",
    "verify_throttle_cb",
    "verify_stats_cb",
)

ASYNCIO = (
    ("test_basic_consume", "1"),
    ("test_basic_consume", "5"),
    ("test_basic_consume", "20"),
    ("test_basic_poll",),
    ("test_async_consumer_joins_and_leaves_rebalance",),
    ("test_async_topic_partition_changes_rebalance",),
    ("test_async_callback_exception_behavior",),
)
"""Of tests/ducktape/test_consumer.py, with batch sizes; the others need a schema registry."""

TEST_LIMIT_S = 180
CHECK_LIMIT_S = 300

ALL = ("unit", "integration", "verify", "asyncio")


def main() -> int:
    wanted = sys.argv[1:] or ALL
    failed = False
    if "unit" in wanted:
        paths = [f"tests/test_{name}.py" for name in UNIT]
        failed |= compared("unit", lambda kind: of_pytest(kind, paths, {}))
    if set(ALL[1:]) & set(wanted):
        with RealKafka(settings={"auto.create.topics.enable": "true"}) as kafka:
            if "integration" in wanted:
                paths = [f"tests/integration/{name}" for name in INTEGRATION]
                given = {"BROKERS": kafka.bootstrap}
                failed |= compared("integration", lambda kind: of_pytest(kind, paths, given))
            if "verify" in wanted:
                failed |= compared("verify", lambda kind: of_checks(kind, kafka.bootstrap))
            if "asyncio" in wanted:
                failed |= compared("asyncio", lambda kind: of_asyncio(kind, kafka.bootstrap), ("ours", "async"))
    return int(failed)


SHOWN = {"ours": "on our Consumer", "async": "on AsyncConsumer"}


def compared(name: str, run: Callable[[str], Outcomes], kinds: Sequence[str] = ("ours",)) -> bool:
    """Tell how many passed on either class. True if one passes on theirs and not on ours."""
    theirs = run("theirs")
    say(f"{name}: {passed(theirs)} of {len(theirs)} pass on confluent-kafka's.")
    failed = False
    for kind in kinds:
        ours = run(kind)
        worse = sorted(test for test, why in theirs.items() if not why and ours.get(test, "it did not run"))
        say(f"{name}: {passed(ours)} of {len(theirs)} pass {SHOWN[kind]}.")
        for test in worse:
            why = ours.get(test, "it did not run").strip().splitlines()
            say(f"  only on theirs: {test}: {why[-1] if why else ''}")
        for test in sorted(test for test, why in theirs.items() if why):
            why = theirs[test].strip().splitlines()
            say(f"  {'on neither' if ours.get(test, 'x') else 'only on ours'}: {test}: {why[-1] if why else ''}")
        failed |= bool(worse)
    return failed


def passed(outcomes: Outcomes) -> int:
    return sum(not why for why in outcomes.values())


def of_pytest(kind: str, paths: Iterable[str], environment: dict[str, str]) -> Outcomes:
    plugin = ["-p", "in_place"] if kind == "ours" else []
    options = [*plugin, "-q", "-W", "ignore", "--timeout", str(TEST_LIMIT_S), "-k", NOT_OURS, *paths]
    return limited_pytest(options, environment, limit_s=2 * TEST_LIMIT_S)


def of_checks(kind: str, bootstrap: str) -> Outcomes:
    return {name: check("verify.py", bootstrap, kind, name) for name in VERIFY}


def of_asyncio(kind: str, bootstrap: str) -> Outcomes:
    return {"-".join(test): check("asynchronous.py", bootstrap, kind, *test) for test in ASYNCIO}


def check(script: str, *arguments: str) -> str:
    """Why it failed, "" if it did not. The limit kills."""
    command = [sys.executable, str(HERE / script), *arguments]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CHECK_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"it took more than {CHECK_LIMIT_S} s"
    lines = [line for line in ran.stdout.splitlines() if line.startswith('{"passed"')]
    return str(json.loads(lines[-1])["why"]) if lines else f"it ended with {ran.returncode}: {ran.stderr[-500:]}"


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # a tool for a terminal


if __name__ == "__main__":
    sys.exit(main())
