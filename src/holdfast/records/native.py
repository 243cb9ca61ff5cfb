"""The kernel's machine code: compiled by numba once per machine, then loaded from a file in milliseconds.

Importing numba and letting it load its own cache takes 1.5 to 2.5 s in every process, and Spark starts many. So the
compiled kernel is optimised once more with everything but its entry made private, which leaves an object file that
calls nothing but memcpy; it is kept on disk and linked by llvmlite alone.

Rules
- What is loaded is executed. A file counts only if it and its folder belong to us or to root and nobody else can write
  there, and if it holds the digest of its own content.
- The file's name carries a digest of what the code depends on: its sources, numba, LLVM and the architecture.
- The call releases the GIL.
- A log line says that the compiler runs, and how to run it beforehand: `python -m holdfast.records.native`.

It must not know what the kernel does.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

log = logging.getLogger("holdfast")

_ENTRY = "holdfast_decode"
_DIGEST_BYTES = 32
_HERE = Path(__file__).parent
_SOURCES = ("kernel.py", "layout.py", "memory.py", "native.py")
_HOW_TO_KEEP = "set NUMBA_CACHE_DIR to a folder that only this user can write"
_one_at_a_time = threading.Lock()
_engines: list[Any] = []
"""LLVM's engines own the memory that the code lies in: they live as long as the process."""


Decode = Callable[[int, int, int, int, int, int, int], int]


def decode() -> Decode:
    """The kernel's entry, `kernel.decode`. The first call on a machine compiles for some seconds.

    One thread at a time: a hundred consumers that start together would compile it as many times as they have threads.
    """
    with _one_at_a_time:
        return linked()


def decode_if_kept() -> Decode | None:
    """The same if its machine code is on disk; None if it would have to be compiled."""
    with _one_at_a_time:
        return linked() if kept_code(file_name()) is not None else None


def made() -> Decode:
    """Linked anew, from the kept code or from code that is compiled now. `decode` does it once per process."""
    name = file_name()
    code = kept_code(name)
    if code is None:
        log.warning(
            "compiling the record decoder, which takes about ten seconds; records come after that. This happens once "
            "per machine or image: `python -m holdfast.records.native` does it beforehand"
        )
        code = compiled()
        if write_code(name, code) is None:
            log.warning("the compiled decoder can't be kept, so every process will compile it: %s", _HOW_TO_KEEP)
    return link(code)


linked = cache(made)


def file_name() -> str:
    return f"holdfast-{_key()}.o"


def kept_code(name: str) -> bytes | None:
    return next((found for folder in folders() if (found := read_code(folder / name)) is not None), None)


def link(code: bytes) -> Decode:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(llvm))
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)  # a CFUNCTYPE lets go of the GIL
    return entry(engine.get_function_address(_ENTRY))


def compiled() -> bytes:
    import llvmlite.binding as llvm

    from holdfast.records.kernel import to_llvm

    assembly, entry = to_llvm()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(assembly)
    for function in module.functions:
        if function.name == entry:
            function.name = _ENTRY
        elif not function.is_declaration:
            function.linkage = "internal"  # then LLVM sees that nothing raises, and drops numba's error paths
    machine = _target_machine(llvm)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def _target_machine(llvm: Any) -> Any:
    """The architecture's oldest processor: the kernel is scalar code around memcpy and gains nothing from newer ones.
    So an image that was warmed up on one machine starts quickly on all."""
    return llvm.Target.from_default_triple().create_target_machine(opt=3, jit=True)


def _key() -> str:
    digest = hashlib.sha256()
    for source in _SOURCES:
        digest.update((_HERE / source).read_bytes())
    for fact in (version("numba"), version("llvmlite"), platform.system(), platform.machine()):
        digest.update(f"\0{fact}".encode())
    return digest.hexdigest()[:16]


def folders() -> Iterator[Path]:
    """Where the file may lie: numba's cache folder if set, beside the source, the user's cache, a private folder.

    The last ones serve read-only installations and accounts without a home.
    """
    if told := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(told)
    yield _HERE / "__pycache__"
    with suppress(RuntimeError):  # no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    yield Path(tempfile.gettempdir()) / f"holdfast-{os.geteuid()}"


def read_code(path: Path) -> bytes | None:
    try:
        if not (_only_ours(path.parent) and _only_ours(path)):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    code = content[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == content[:_DIGEST_BYTES] else None


def write_code(name: str, code: bytes) -> Path | None:
    """Keep the code in the first folder that takes it; returns the file, or None if no folder does."""
    for folder in folders():
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _only_ours(folder):
                continue
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=name)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(folder / name)
            return folder / name
    return None


def _only_ours(path: Path) -> bool:
    found = path.lstat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022 and not path.is_symlink()


def keep() -> Path | None:
    """Compile the kernel unless it is kept already; returns the file. For building an image."""
    name = file_name()
    kept = next((folder / name for folder in folders() if read_code(folder / name) is not None), None)
    return kept or write_code(name, compiled())


if __name__ == "__main__":
    if keep() is None:
        raise SystemExit(f"The compiled decoder can't be kept: {_HOW_TO_KEEP}.")
