"""Fills a new file with bytes and parts of other files: blocks are shared where they can be, the rest is copied by two
threads."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from relu_tools.report import ModelFileError
from relu_tools.sources import CHUNK, Part, Source, emit

_PAGE = 4096
_FICLONERANGE = 0x4020940D  # of linux/fs.h

_Portion = tuple[int, list["memoryview | Part"]]
"""Pieces that follow one another in the new file and take no more than CHUNK together, and the place of the first."""


def fill(pieces: Iterable[bytes | Part], out: BinaryIO) -> None:
    """Writes the pieces to a new and empty regular file, past its buffer and its position.

    Raises what `emit` does, and the first error alone; an interrupt ends it at once.
    """
    if not hasattr(os, "preadv"):
        emit(pieces, out)
        return
    work = _Work(pieces, out.fileno())
    # Of its own, since a second interrupt may close the file while the thread still writes its last portion.
    descriptor = os.dup(out.fileno())
    helper = threading.Thread(target=work.help, args=(descriptor,))
    try:
        try:
            helper.start()
        except RuntimeError:  # No thread may be had; it goes without.
            os.close(descriptor)
        work.run(out.fileno())
    finally:
        work.ended = True
        if helper.ident is not None:
            helper.join()
    work.finish()


class _Work:
    """What is left to do, taken portion by portion from the front, so that a disk reads nearly in order."""

    def __init__(self, pieces: Iterable[bytes | Part], descriptor: int):
        self.ended = False
        self._error: BaseException | None = None
        self._sources: dict[int, Source] = {}
        self._lock = threading.Lock()
        self._portions = _portions(self._placed(pieces, descriptor))

    def run(self, descriptor: int) -> None:
        """Writes portions until there are none."""
        buffer = memoryview(mmap.mmap(-1, CHUNK + _PAGE))
        while (portion := self._next()) is not None:
            place, pieces = portion
            start = end = _start(place, pieces)
            for piece in pieces:
                into = buffer[end : end + _size(piece)]
                if isinstance(piece, Part):
                    _read(piece, into)
                else:
                    into[:] = piece
                end += len(into)
            while start < end:
                done = os.pwrite(descriptor, buffer[start:end], place)
                start, place = start + done, place + done

    def help(self, descriptor: int) -> None:
        """`run` in another thread, with a descriptor to be closed."""
        try:
            self.run(descriptor)
        except BaseException as error:
            self._error = error
            self.ended = True
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Raises what went wrong in the other thread; ModelFileError where a source is not what it was."""
        if self._error is not None:
            raise self._error
        for source in self._sources.values():
            source.check()

    def _next(self) -> _Portion | None:
        with self._lock:
            return None if self.ended else next(self._portions, None)

    def _placed(self, pieces: Iterable[bytes | Part], descriptor: int) -> Iterator[tuple[int, memoryview | Part]]:
        """Each piece that is to be copied, with its place."""
        # Where a file can be without a name it can be reserved for. Where not, glibc would write to each block instead,
        # which over a network takes longer than it saves.
        reserves = hasattr(os, "posix_fallocate") and os.fstat(descriptor).st_nlink == 0
        shares = sys.platform == "linux"
        place = 0
        for piece in pieces:
            if isinstance(piece, bytes):
                yield place, memoryview(piece)
                place += len(piece)
                continue
            if id(piece.source) not in self._sources:
                self._sources[id(piece.source)] = piece.source
                piece.source.check()
            end = place + piece.size
            # Of whole pages alone.
            lead = -place % _PAGE
            rest = lead + max(0, piece.size - lead) // _PAGE * _PAGE
            if shares and rest - lead >= CHUNK and (piece.start - place) % _PAGE == 0:
                shares = _share(piece.cut(lead, rest), descriptor, place + lead)
                if shares:
                    yield place, piece.cut(0, lead)
                    place, piece = place + rest, piece.cut(rest, piece.size)
            if reserves and piece.size >= CHUNK:
                # All at once is faster than page by page. Whether it fits is for the writing to say.
                with contextlib.suppress(OSError):
                    os.posix_fallocate(descriptor, place, piece.size)
            yield place, piece
            place = end


def _portions(placed: Iterable[tuple[int, memoryview | Part]]) -> Iterator[_Portion]:
    """Ends at multiples of CHUNK, so that no two threads write to one page."""
    first = end = 0
    gathered: list[memoryview | Part] = []
    for place, piece in placed:
        if place != end:
            if gathered:
                yield first, gathered
            first, gathered = place, []
        done, end = 0, place
        while done < _size(piece):
            some = min(_size(piece) - done, CHUNK - end % CHUNK)
            gathered.append(piece.cut(done, done + some) if isinstance(piece, Part) else piece[done : done + some])
            done, end = done + some, end + some
            if end % CHUNK == 0:
                yield first, gathered
                first, gathered = end, []
    if gathered:
        yield first, gathered


def _start(place: int, pieces: list[memoryview | Part]) -> int:
    """Where in a buffer of whole pages to gather what goes to that place.

    Many processors copy several times slower to where it is a few bytes further on in its page than where it came from.
    """
    for piece in pieces:
        if isinstance(piece, Part) and piece.size > _PAGE and 0 < (place - piece.start) % _PAGE < 64:
            return _PAGE // 2
        place += _size(piece)
    return 0


def _size(piece: memoryview | Part) -> int:
    return piece.size if isinstance(piece, Part) else len(piece)


def _share(part: Part, descriptor: int, place: int) -> bool:
    """Whether the file system took over the part's blocks, as some can within themselves; `part` is whole pages."""
    import fcntl

    try:
        asked = struct.pack("=qQQQ", part.source.file.fileno(), part.start, part.size, place)
        fcntl.ioctl(descriptor, _FICLONERANGE, asked)
    except OSError:
        return False
    return True


def _read(part: Part, into: memoryview) -> None:
    done = 0
    while done < part.size:
        some = os.preadv(part.source.file.fileno(), [into[done:]], part.start + done)
        if not some:
            raise ModelFileError("a file with weights has become shorter while it was read")
        done += some
