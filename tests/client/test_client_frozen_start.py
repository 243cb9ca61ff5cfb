"""A process that is stopped while its consumer starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast.testing import Broker
from patience import PATIENCE_S

PROGRAM = """
import asyncio, sys
from holdfast import AsyncConsumer
from holdfast.client.member import control

control.START_TIMEOUT_S = 4.0
poke_socket_for = control.poke_socket_for

async def slowly(*given):
    print("opening", flush=True)
    await asyncio.sleep(1.0)
    return await poke_socket_for(*given)

control.poke_socket_for = slowly

async def main():
    consumer = AsyncConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
    await consumer.subscribe([sys.argv[3]])
    print("subscribed", flush=True)
    await consumer.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_that_was_frozen_while_it_started_has_not_waited(broker: Broker, topic: str) -> None:
    """Symptom: in the chaos an AsyncConsumer that was stopped (SIGSTOP) in its first moments for longer than its thread
    may take to start raised a bare TimeoutError from subscribe() on waking. Cause: the time was taken by the clock,
    which goes on while nobody runs. Rule: only time in which this process ran counts as waited."""
    words = [sys.executable, "-c", PROGRAM, broker.bootstrap, f"frozen-{topic}", topic]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opening\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(5.0)
        os.kill(process.pid, signal.SIGCONT)
        said, complaints = process.communicate(timeout=PATIENCE_S)
    assert said == "subscribed\n", complaints
