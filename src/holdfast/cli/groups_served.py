"""`holdfast groups serve`: watches groups and serves metrics about them to Prometheus."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import BootstrapServer, CommandConfig, Interrupt, ask, client_settings, wrong_use
from holdfast.cli.groups_watched import Looks, looks
from holdfast.model import ErrorCode, HoldfastError
from holdfast.observe.exposition import CONTENT_TYPE, exposed
from holdfast.observe.history import History, Rebalance

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
    if not host.strip():
        wrong_use("METRICS_HOST", "--host is empty.", "Leave it out for 127.0.0.1, or give 0.0.0.0 for every address.")
    watched = Watched()
    with Interrupt() as interrupt:

        async def work(cluster: Cluster) -> None:
            from holdfast.net.scraped import Scraped

            def text() -> str:
                return watched.text(cluster_name)

            async with Scraped(text, content_type=CONTENT_TYPE, port=port, host=host) as scraped:
                print(f"Serving {scraped.address}", flush=True)
                async for look in looks(cluster, groups or [], every_s=every_s, for_s=None, stopped=interrupt.asked):
                    watched.take(look, time.monotonic() * 1000)

        ask(client_settings(bootstrap_server, command_config), work)


def _report_failure(name: str, error: HoldfastError, before: int) -> None:
    """Print it the first time, and then every hundredth time."""
    if before % 100 == 0:
        print(f"holdfast: {name}: {error.code}: {error.what}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Watched:
    """What is known from all looks so far. A group's figures are dropped when they may no longer be true."""

    report: Callable[[str, HoldfastError, int], None] = _report_failure
    """Told of each look that failed: group, error, and how many of the group's had failed before."""
    histories: dict[str, History] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    unread: set[str] = field(default_factory=set)
    """Groups whose last look failed."""

    def take(self, look: Looks, now_ms: float) -> dict[str, Rebalance | None]:
        """Returns the groups that could be read, each with the rebalance that has ended with this look, if one has."""
        ended: dict[str, Rebalance | None] = {}
        for name, found in look.items():
            if isinstance(found, HoldfastError):
                self.report(name, found, self.failures[name])
                self.failures[name] += 1
                self.unread.add(name)
                if name in self.histories:
                    self.histories[name].miss()
                if found.code == ErrorCode.GROUP_ID_NOT_FOUND.name:  # a later group of this name is another one
                    self.histories.pop(name, None)
            else:
                self.unread.discard(name)
                ended[name] = self.histories.setdefault(name, History()).see(found, now_ms)
        for name in {*self.histories, *self.failures} - set(look):  # deleted, or expired: its figures end here
            self.histories.pop(name, None)
            self.failures.pop(name, None)
            self.unread.discard(name)
        return ended

    def text(self, cluster: str) -> str:
        return exposed(self.histories, failures=self.failures, cluster=cluster, unread=self.unread)
