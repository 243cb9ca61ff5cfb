"""`holdfast topics`: create, list, describe and delete topics, on any Kafka.

The description is exactly what `kafka-topics.sh` prints, so that scripts written for it go on working; if brokers have
racks, the racks of each partition's replicas are added. With several names each is handled by itself: errors are
printed one per line, and the exit code is 1 if there was any.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.common import (
    BootstrapServer,
    CommandConfig,
    Output,
    OutputForm,
    ask,
    client_settings,
    show_error,
    wrong_use,
)
from holdfast.cli.listing import Listing
from holdfast.model import ErrorCode, HoldfastError

if TYPE_CHECKING:
    from holdfast.net.admin import Admin, Verdicts
    from holdfast.net.cluster import Cluster
    from holdfast.net.metadata import ClusterInfo, TopicInfo

LEADERS_S = 10.0
"""How long a new topic may take to get its leaders: Kafka needs milliseconds, a busy cluster a second or two."""

LOOK_EVERY_S = 0.02

app = typer.Typer(
    cls=Listing, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    partitions: Annotated[int, typer.Option(min=-1, help="How many; -1 is the broker's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(min=-1, help="How many; -1 is the broker's default.")] = -1,
    config: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting. Repeat it.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is fine.")] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create a topic, and return when every partition has a leader."""
    from holdfast.net.admin import Admin, NewTopic

    if partitions == 0 or replication_factor == 0:
        wrong_use("TOPIC_SIZE_INVALID", "A topic has at least one partition and one replica.", "Give 1 or more.")
    settings = dict(_setting(text) for text in config or [])
    topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, settings=settings)

    async def work(cluster: Cluster) -> tuple[bool, int]:
        refused = (await Admin(cluster).create_topics([topic]))[name]
        existed = refused is not None and refused.error is ErrorCode.TOPIC_ALREADY_EXISTS
        if existed and not if_not_exists:
            do = "Use it, choose another name, or give --if-not-exists."
            raise HoldfastError(ErrorCode.TOPIC_ALREADY_EXISTS.name, f"The topic {name} exists already.", do)
        if refused is not None and not existed:
            raise refused
        return not existed, await _wait_for_leaders(cluster, name)

    created, count = ask(client_settings(bootstrap_server, command_config), work)
    if output is Output.JSON:
        print(json.dumps({"created": created, "partitions": count, "topic": name}, sort_keys=True))
    elif created:
        print(f"Created topic {name}.")
    else:
        print(f"Topic {name} is there already.")


@app.command(name="list")
def list_topics(
    exclude_internal: Annotated[bool, typer.Option("--exclude-internal", help="Leave out Kafka's own.")] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the names of all topics."""
    from holdfast.net.admin import Admin

    found = ask(client_settings(bootstrap_server, command_config), lambda cluster: Admin(cluster).describe_topics())
    names = sorted(name for name, topic in found.items() if not (exclude_internal and topic.internal))
    if output is Output.JSON:
        print(json.dumps(names))
        return
    for name in names:
        print(name)


@app.command()
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Which; all if none is named.")] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show topics with their settings, and where their partitions are."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from holdfast.net.admin import Admin

        info = await cluster.refresh(names or None)
        admin = Admin(cluster)
        return [await _described(admin, info, topic) for _, topic in sorted(info.topics.items())]

    found = ask(client_settings(bootstrap_server, command_config), work)
    missing = [topic for topic in found if "error" in topic]
    if output is Output.JSON:
        print(json.dumps(found, sort_keys=True))
    else:
        for topic in found:
            if "error" not in topic:
                _show(topic)
    for topic in missing:
        show_error(_unknown(topic["topic"], topic["error"]))
    if missing:
        raise typer.Exit(1)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Which.")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that is not there is fine.")] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete topics and everything in them."""

    async def work(cluster: Cluster) -> Verdicts:
        from holdfast.net.admin import Admin

        return await Admin(cluster).delete_topics(sorted(set(names)))

    verdicts = ask(client_settings(bootstrap_server, command_config), work)
    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = {n: e for n, e in verdicts.items() if e is not None and not (if_exists and e.error is absent)}
    deleted = sorted(name for name, error in verdicts.items() if error is None)
    if output is Output.JSON:
        errors = {name: error.code for name, error in refused.items()}
        print(json.dumps({"deleted": deleted, "errors": errors}, sort_keys=True))
    else:
        for name in deleted:
            print(f"Deleted topic {name}.")
    for name, error in refused.items():
        show_error(_unknown(name, error.code) if error.error is absent else error)
    if refused:
        raise typer.Exit(1)


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (key.strip() and separator):
        wrong_use("SETTING_INVALID", f"{text!r} is not KEY=VALUE.", "Write for instance retention.ms=3600000.")
    return key.strip(), value.strip()


async def _wait_for_leaders(cluster: Cluster, name: str) -> int:
    """Wait until every partition of a new topic has a leader, so that it can be used; returns how many it has."""
    deadline = asyncio.get_running_loop().time() + LEADERS_S
    while True:
        topic = (await cluster.refresh([name])).topics.get(name)
        partitions = {} if topic is None or topic.error is not ErrorCode.NONE else topic.partitions
        if partitions and all(one.leader >= 0 for one in partitions.values()):
            return len(partitions)
        if asyncio.get_running_loop().time() > deadline:
            raise HoldfastError(
                "TOPIC_WITHOUT_LEADERS",
                f"The topic {name} was created, but not every partition has a leader after {LEADERS_S:g} s.",
                f"See `holdfast topics describe {name}`, and whether all brokers run.",
            )
        await asyncio.sleep(LOOK_EVERY_S)


async def _described(admin: Admin, info: ClusterInfo, topic: TopicInfo) -> dict[str, Any]:
    if topic.error is not ErrorCode.NONE:
        return {"topic": topic.name, "error": topic.error.name}
    settings = await admin.describe_settings(topic.name)
    replicas = [len(one.replicas) for one in topic.partitions.values()]
    racks = any(broker.rack is not None for broker in info.brokers.values())
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else _java_id(topic.topic_id.bytes),
        "partition_count": len(topic.partitions),
        "replication_factor": max(replicas, default=0),
        "configs": {name: one.value for name, one in sorted(settings.items()) if not one.is_default},
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "isr": list(one.in_sync),
                **({"racks": _racks(info, one.replicas)} if racks else {}),
            }
            for _, one in sorted(topic.partitions.items())
        ],
    }


def _racks(info: ClusterInfo, replicas: tuple[int, ...]) -> list[str | None]:
    """The replicas' racks, in the replicas' order."""
    return [info.brokers[node].rack if node in info.brokers else None for node in replicas]


def _java_id(raw: bytes) -> str:
    """A topic's id as Kafka's tools write it: base 64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _show(topic: dict[str, Any]) -> None:
    configs = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
    print(
        f"Topic: {topic['topic']}\tTopicId: {topic['topic_id'] or 'none'}\tPartitionCount: {topic['partition_count']}"
        f"\tReplicationFactor: {topic['replication_factor']}\tConfigs: {configs}"
    )
    for one in topic["partitions"]:
        line = (
            f"\tTopic: {topic['topic']}\tPartition: {one['partition']}\tLeader: "
            f"{one['leader'] if one['leader'] >= 0 else 'none'}\tReplicas: {_listed(one['replicas'])}"
            f"\tIsr: {_listed(one['isr'])}"
        )
        if "racks" in one:
            line += f"\tRacks: {','.join(rack or 'none' for rack in one['racks'])}"
        print(line)


def _listed(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


def _unknown(name: str, code: str) -> HoldfastError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
        return HoldfastError(code, f"There is no topic {name}.", "`holdfast topics list` shows those there are.")
    return HoldfastError(code, f"The topic {name} can't be shown.", "Check its name, and your rights to it.")
