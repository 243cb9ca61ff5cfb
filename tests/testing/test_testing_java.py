"""Finding Java, Kafka's jars and a compiler; every missing part says what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.model import HoldfastError
from holdfast.testing import java
from holdfast.testing.java import compile_java, find_java, java_command, kafka_classpath, kafka_jars

HELLO = 'public class Hello { public static void main(String[] a) { System.out.println("hello " + a[0]); } }'


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that only says its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(java.sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.usefixtures("bare")
def test_no_java_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(HoldfastError, match=r"JAVA_MISSING.*make setup"):
        find_java()


@pytest.mark.usefixtures("bare")
def test_an_old_java_is_passed_over_for_a_newer_one_further_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(HoldfastError, match="version 1"):
        find_java()

    newer = fake_java(tmp_path / "environment" / "java", "21.0.1")

    assert find_java() == newer


@pytest.mark.usefixtures("bare")
def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", "17.0.2")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin")
    assert find_java() == on_path

    at_home = fake_java(tmp_path / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == at_home


def test_missing_jars_are_an_error_that_names_the_folder_and_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA_JARS", str(tmp_path))

    with pytest.raises(HoldfastError, match=rf"{tmp_path}.*make kafka-jars"):
        kafka_classpath()


def test_the_class_path_has_every_jar_but_the_compiler_in_a_fixed_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("zstd-jni.jar", "kafka-clients-4.1.0.jar", "ecj-3.40.0.jar"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HOLDFAST_KAFKA_JARS", str(tmp_path))

    assert kafka_classpath(Path("/classes")) == f"/classes:{tmp_path}/kafka-clients-4.1.0.jar:{tmp_path}/zstd-jni.jar"


@pytest.mark.java
@pytest.mark.parametrize("with_javac", [True, False], ids=["javac", "ecj"])
def test_a_source_is_compiled_once_and_runs(with_javac: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "Hello.java"
    source.write_text(HELLO)
    if not with_javac:
        runtime_only = [str(find_java()), "-jar", str(next(kafka_jars().glob("ecj-*.jar"))), "-17"]
        monkeypatch.setattr(java, "compiler_command", lambda: runtime_only)

    classes = compile_java([source])
    monkeypatch.setattr(java, "run_compiler", lambda _command: pytest.fail("compiled a second time"))

    assert compile_java([source]) == classes
    command = java_command("Hello", ["you"], classpath=str(classes))
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "hello you\n"


@pytest.mark.java
def test_a_changed_source_is_compiled_anew_and_a_faulty_one_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "Hello.java"
    source.write_text(HELLO)
    first = compile_java([source])
    source.write_text(HELLO.replace("hello ", "good day "))
    assert compile_java([source]) != first

    source.write_text(HELLO.replace("println", "prinln"))
    with pytest.raises(HoldfastError, match=r"(?s)JAVA_COMPILE_FAILED.*prinln"):
        compile_java([source])
    assert not list((tmp_path / "cache" / "holdfast" / "java").glob(".compiling-*")), "scratch folders are removed"


@pytest.mark.java
@pytest.mark.usefixtures("bare")
def test_a_runtime_without_javac_falls_back_to_the_eclipse_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runtime = fake_java(tmp_path / "runtime", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "runtime"))
    command = java.compiler_command()

    assert command[0] == str(runtime)
    assert Path(command[2]).name.startswith("ecj-")
