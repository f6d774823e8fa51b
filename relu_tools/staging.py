"""Files that are written whole before they take the places of others."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


class Staging:
    """A context in which files are written beside their targets; `commit` puts them there, one after the other.

    Whatever has not been put in its place when the context ends is removed, folders made for it included. Where the
    file system has files without a name, they are used: of these a killed process leaves nothing.
    """

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self._renames: list[tuple[Path, Path]] = []

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @contextlib.contextmanager
    def file(self, target: Path) -> Iterator[BinaryIO]:
        """A file to be written, with the mode of what it replaces."""
        for folder in reversed([folder for folder in target.parents if not folder.exists()]):
            with contextlib.suppress(FileExistsError):  # another process was faster
                folder.mkdir()
                self._undo.callback(_forgiving, folder.rmdir)
        temporary = target.with_name(f".{os.urandom(8).hex()}.tmp")
        self._undo.callback(_forgiving, temporary.unlink)
        nameless = _nameless(target.parent)
        with nameless or open(temporary, "xb") as out:
            if target.exists():
                os.chmod(out.fileno() if nameless else temporary, stat.S_IMODE(target.stat().st_mode))
            yield out
            out.flush()
            if nameless:
                _give_name(out.fileno(), temporary)
        self._renames.append((temporary, target))

    def commit(self) -> None:
        for temporary, target in self._renames:
            os.replace(temporary, target)


def _nameless(folder: Path) -> BinaryIO | None:
    """A new file in a folder that has no name there yet; None where that cannot be."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return open(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), "w+b")
    except OSError:
        return None


def _give_name(descriptor: int, name: Path) -> None:
    path = f"/proc/self/fd/{descriptor}"
    folder = os.open("/", os.O_RDONLY)  # With a folder, though it is not used here, the link is followed.
    try:
        os.link(path, name, src_dir_fd=folder, follow_symlinks=True)
    except OSError:
        shutil.copyfile(path, name)
        shutil.copymode(path, name)
    finally:
        os.close(folder)


def _forgiving(action: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        action()
