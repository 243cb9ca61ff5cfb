"""The tests of tests/ducktape/test_consumer.py that are about asyncio, without ducktape. Prints one JSON object each.

python asynchronous.py BOOTSTRAP (theirs|ours|async) NAME [BATCH_SIZE]

`ours` has our Consumer under confluent-kafka's AIOConsumer, `async` has AsyncConsumer in its place. Of ducktape only
what these tests import is there: it would start clusters, and one runs already.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any


class Process:
    """In the place of psutil's, of which the memory is asked."""

    def memory_info(self) -> types.SimpleNamespace:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return types.SimpleNamespace(rss=pages * os.sysconf("SC_PAGE_SIZE"))


class Standing:
    """In the place of ducktape's Test and Service, of which a name and a logger are used."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.logger = logging.getLogger("ducktape")


def without_ducktape() -> None:
    def module(name: str, **content: Any) -> None:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(content)

    module("psutil", Process=Process, Error=OSError)
    module("ducktape")
    module("ducktape.mark", matrix=lambda **_: lambda test: test)
    module("ducktape.tests")
    module("ducktape.tests.test", Test=Standing)
    module("ducktape.services")
    module("ducktape.services.service", Service=Standing)


def replace(kind: str) -> None:
    if kind == "ours":
        import in_place  # noqa: F401  (that it is imported is all)
    elif kind == "async":
        import confluent_kafka.aio

        import holdfast

        confluent_kafka.aio.AIOConsumer = holdfast.AsyncConsumer  # type: ignore[misc,assignment]  # a name is all


def main() -> None:
    bootstrap, kind, name, *batch_size = sys.argv[1:]
    sys.path[:0] = [str(Path.cwd()), str(Path(__file__).parent)]
    without_ducktape()
    replace(kind)
    try:
        tests = importlib.import_module("tests.ducktape.test_consumer")
        one = tests.SimpleConsumerTest(None)
        one.kafka.bootstrap_servers_str = bootstrap
        given: dict[str, Any] = {} if name.startswith("test_async") else {"consumer_type": "async"}
        if batch_size:
            given["batch_size"] = int(batch_size[0])
        getattr(one, name)(**given)
    except BaseException:  # noqa: BLE001  # a test may end by anything, also by sys.exit
        print(json.dumps({"passed": False, "why": traceback.format_exc()[-2_000:]}), flush=True)  # noqa: T201
    else:
        print(json.dumps({"passed": True, "why": ""}), flush=True)  # noqa: T201
    os._exit(0)  # what is left behind is not what is tested


if __name__ == "__main__":
    main()
