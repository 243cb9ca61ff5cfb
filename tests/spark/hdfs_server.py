"""A small HDFS on loopback: Hadoop's own cluster for tests, one namenode and one datanode in one JVM."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from patience import PATIENCE_S

JARS = Path(__file__).parent / "hdfs" / "jars"


@contextmanager
def hdfs_server(folder: Path) -> Iterator[str]:
    """Its address, for `open_store`."""
    assert list(JARS.glob("hadoop-client-minicluster*.jar")), "run `make hdfs-jars`"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None
    sparks = Path(pyspark.origin).parent / "jars"
    command = ["java", "-Xmx400m", "-cp", f"{JARS}/*:{sparks}/hadoop-client-api*:{sparks}/*"]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]
    ready = folder / "ready.json"
    with (folder / "log").open("wb") as log:
        command += ["-httpport", str(port), "-writeDetails", str(ready)]
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (ready.exists() and ready.stat().st_size):
            assert server.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield f"webhdfs://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
