"""`holdfast groups serve`: groups as metrics for Prometheus, learnt by watching them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import BootstrapServer, CommandConfig, Interrupt, ask, client_settings
from holdfast.cli.groups_watched import looks
from holdfast.model import HoldfastError
from holdfast.observe.exposition import CONTENT_TYPE, exposed
from holdfast.observe.history import History

if TYPE_CHECKING:
    from holdfast.net.cluster import Cluster


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to serve /metrics; 0 is any that is free.")],
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Which; all if none is named.")] = None,
    host: Annotated[str, typer.Option(help="Which address to listen on. 0.0.0.0 is every one.")] = "127.0.0.1",
    every_s: Annotated[float, typer.Option("--every", metavar="S", min=0.05, help="How often to look.")] = 2.0,
    cluster_name: Annotated[str, typer.Option(help="The label cluster_name of kafka-lag-exporter's metrics.")] = "",
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Serve lag, rebalances, their causes and culprits to Prometheus, until Ctrl-C."""
    histories: dict[str, History] = {}
    failures: Counter[str] = Counter()
    with Interrupt() as interrupt:

        async def work(cluster: Cluster) -> None:
            from holdfast.net.scraped import Scraped

            def text() -> str:
                return exposed(histories, failures=failures, cluster=cluster_name)

            async with Scraped(text, content_type=CONTENT_TYPE, port=port, host=host) as scraped:
                print(f"Serving {scraped.address}", flush=True)
                async for look in looks(cluster, groups or [], every_s=every_s, for_s=None, stopped=interrupt.asked):
                    now_ms = time.monotonic() * 1000
                    for name, found in look.items():
                        if isinstance(found, HoldfastError):
                            _told(name, found, failures)
                            failures[name] += 1
                        else:
                            histories.setdefault(name, History()).see(found, now_ms)
                    for name in set(histories) - set(look):  # deleted, or expired: its figures end here
                        del histories[name]
                        failures.pop(name, None)

        ask(client_settings(bootstrap_server, command_config), work)


def _told(name: str, error: HoldfastError, failures: Counter[str]) -> None:
    """Say it the first time, and then every hundredth."""
    if failures[name] % 100 == 0:
        print(f"holdfast: {name}: {error.code}: {error.what}", file=sys.stderr, flush=True)
