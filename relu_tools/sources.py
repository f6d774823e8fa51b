"""Files that weights are copied from, and the copying to a stream."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from relu_tools.report import ModelFileError

CHUNK = 1 << 20
"""Bytes that are copied at a time."""


class Source:
    """A file that weights are copied from: kept open, and checked to be what it was when it was opened.

    `salt` marks the tokens that stand for its `parts`, each a place in it and a number of bytes.
    """

    def __init__(self, file: BinaryIO, path: Path | None):
        self.file, self.path = file, path
        self.salt = os.urandom(8).hex().encode()
        self.parts: list[tuple[int, int]] = []
        self._stamp = _stamp(os.fstat(file.fileno()))
        weakref.finalize(self, file.close)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._stamp[2]

    def check(self) -> None:
        """ModelFileError if the file has changed since."""
        try:
            now = [os.fstat(self.file.fileno()), *([os.stat(self.path)] if self.path else [])]
        except OSError as error:
            raise ModelFileError(f"{self.path} has gone since it was opened: {error.strerror}") from None
        if any(_stamp(status) != self._stamp for status in now):
            raise ModelFileError(f"{self.path or 'the input'} has changed since it was opened")


class Part(NamedTuple):
    """`size` bytes from byte `start` of a file."""

    source: Source
    start: int
    size: int

    def cut(self, start: int, end: int) -> Part:
        """The bytes from `start` to `end` of it."""
        return Part(self.source, self.start + start, end - start)

    def read(self) -> bytes:
        self.source.check()
        return b"".join(_chunks(self.source.file, self.start, self.size))


def emit(pieces: Iterable[bytes | Part], out: BinaryIO) -> None:
    """Writes the pieces; ModelFileError where a file that they come from is not what it was."""
    sources: dict[int, Source] = {}
    for piece in pieces:
        if isinstance(piece, bytes):
            out.write(piece)
            continue
        if id(piece.source) not in sources:
            sources[id(piece.source)] = piece.source
            piece.source.check()
        for chunk in _chunks(piece.source.file, piece.start, piece.size):
            out.write(chunk)
    for source in sources.values():
        source.check()


def _chunks(file: BinaryIO, start: int, left: int) -> Iterator[bytes]:
    file.seek(start)
    while left:
        chunk = file.read(min(left, CHUNK))
        if not chunk:
            raise ModelFileError("a file with weights has become shorter while it was read")
        left -= len(chunk)
        yield chunk


def _stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
