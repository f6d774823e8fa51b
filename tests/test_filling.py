"""New files filled by two threads: the bytes, and what goes wrong in either."""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relu_tools import filling
from relu_tools.filling import fill
from relu_tools.report import ModelFileError
from relu_tools.sources import Part, Source, emit

pytestmark = pytest.mark.skipif(not hasattr(os, "preadv"), reason="what is filled is emitted here")

CHUNK, PAGE, SIZE = 64, 16, 2000
DATA = random.Random(0).randbytes(SIZE)


@contextlib.contextmanager
def small(**others: object) -> Iterator[None]:
    """Chunks and pages are small, and the names given stand for others in the module."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CHUNK": CHUNK, "_PAGE": PAGE, **others}.items():
            patch.setattr(filling, name, value)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fill")
    (folder / "source").write_bytes(DATA)
    return folder


@pytest.fixture
def source(place) -> Source:
    return opened(place / "source")


def opened(path: Path) -> Source:
    return Source(open(path, "rb", buffering=0), path)


def new(folder: Path, named: bool = False) -> BinaryIO:
    """An empty file; one without a name is reserved for."""
    if named or not hasattr(os, "O_TMPFILE"):
        return open(folder / f"{os.urandom(8).hex()}", "w+b")
    return open(os.open(folder, os.O_TMPFILE | os.O_RDWR), "w+b")


def content(out: BinaryIO) -> bytes:
    return os.pread(out.fileno(), 1 << 24, 0)


def emitted(pieces: list[bytes | Part]) -> bytes:
    stream = io.BytesIO()
    emit(pieces, stream)
    return stream.getvalue()


def sharing(part: Part, descriptor: int, place: int) -> bool:
    """What a file system does that can share blocks: whole ones alone, and no more."""
    assert part.start % PAGE == part.size % PAGE == place % PAGE == 0 < part.size
    os.pwrite(descriptor, DATA[part.start : part.start + part.size], place)
    return True


def grudging(part: Part, descriptor: int, place: int) -> bool:
    """Does so once, and no more."""
    return place < CHUNK and sharing(part, descriptor, place)


EDGES = [0, 1, PAGE - 1, PAGE, PAGE + 1, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + PAGE, 3 * CHUNK, 5 * CHUNK + 3]
sizes = st.sampled_from(EDGES) | st.integers(0, 400)
parts = st.tuples(sizes, sizes).map(lambda drawn: (drawn[0], min(drawn[1], SIZE - drawn[0])))
drawn_pieces = st.lists(sizes | parts, max_size=12)


@settings(max_examples=300, deadline=None)
@given(drawn_pieces, st.sampled_from([filling._share, sharing, grudging]), st.booleans())
def test_the_bytes_are_those_that_a_stream_gets(place, drawn, share, named):
    source = opened(place / "source")
    pieces = [DATA[::-1][:d] if isinstance(d, int) else Part(source, *d) for d in drawn]
    with new(place, named) as out, small(_share=share):
        fill(iter(pieces), out)
        assert content(out) == emitted(pieces)


@pytest.mark.parametrize("delta", [0, 1, CHUNK])
def test_whole_pages_of_a_part_are_shared_where_they_fall_on_pages(place, source, delta):
    shared = []

    def share(part: Part, descriptor: int, place: int) -> bool:
        shared.append((part.start, part.size, place))
        return sharing(part, descriptor, place)

    pieces = [DATA[: 3 + delta], Part(source, 3, SIZE - 3)]
    with new(place) as out, small(_share=share):
        fill(pieces, out)
        assert content(out) == emitted(pieces)
    # From the first page that begins in the part to the last one that ends there.
    assert shared == ([] if delta == 1 else [(PAGE, SIZE - PAGE, PAGE + delta)])


def test_reads_and_writes_that_do_less_than_asked(place, source, monkeypatch):
    read, write = os.preadv, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda file, into, at: read(file, [into[0][:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:5], at))
    pieces = [b"abc", Part(source, 5, 1000), b"d" * 500, Part(source, 0, SIZE)]
    with new(place) as out, small():
        fill(pieces, out)
        assert content(out) == emitted(pieces)


@pytest.mark.parametrize("lacking", ["preadv", "posix_fallocate"])
def test_systems_that_can_do_less(place, source, monkeypatch, lacking):
    monkeypatch.delattr(os, lacking)
    pieces = [b"abc", Part(source, 0, SIZE)]
    with new(place) as out, small():
        fill(pieces, out)
        out.flush()
        assert content(out) == emitted(pieces)


def test_no_thread_is_needed(place, source, monkeypatch):
    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with new(place) as out, small():
        fill([b"abc", Part(source, 0, SIZE)], out)
        assert content(out) == b"abc" + DATA
    assert not before or len(os.listdir("/proc/self/fd")) == before


class Fault(Exception):
    pass


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt(), Fault()])
@pytest.mark.parametrize("main", [True, False], ids=["main thread", "other thread"])
def test_what_goes_wrong_in_either_thread_ends_both(place, source, monkeypatch, main, fault):
    write, written = os.pwrite, []
    failed = threading.Event()

    def failing(descriptor: int, data: memoryview, at: int) -> int:
        if (threading.current_thread() is threading.main_thread()) == main:
            failed.set()
            raise fault
        # The other goes on with what it has.
        assert failed.wait(10)
        written.append(at)
        return write(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", failing)
    threads = threading.active_count()
    with new(place) as out, small(), pytest.raises(type(fault)) as caught:
        fill([Part(source, 0, SIZE)], out)
    assert caught.value is fault and threading.active_count() == threads
    assert len(written) < SIZE / CHUNK / 2


def test_a_fault_in_what_makes_the_pieces(place, source):
    def pieces() -> Iterator[bytes | Part]:
        yield Part(source, 0, SIZE)
        raise ModelFileError("no such data")

    with new(place) as out, small(), pytest.raises(ModelFileError, match="no such data"):
        fill(pieces(), out)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk(source):
    with open("/dev/full", "wb") as out, pytest.raises(OSError, match="No space left"):
        fill([Part(source, 0, SIZE)], out)


def test_a_source_that_becomes_shorter(tmp_path, place, monkeypatch):
    path = tmp_path / "w"
    path.write_bytes(DATA)
    part = Part(opened(path), 0, SIZE)
    share = filling._share

    def cut(*given: object) -> bool:
        os.truncate(path, SIZE // 2)
        return share(*given)

    with new(place) as out, small(_share=cut), pytest.raises(ModelFileError, match="shorter"):
        fill([part], out)


def test_a_source_that_changes(tmp_path, place):
    path = tmp_path / "w"
    path.write_bytes(DATA)
    part = Part(opened(path), 0, SIZE)

    def pieces() -> Iterator[bytes | Part]:
        yield part
        os.utime(path, ns=(0, 0))

    for given_pieces in (pieces(), [part]):
        with new(place) as out, small(), pytest.raises(ModelFileError, match="has changed since it was opened"):
            fill(given_pieces, out)


def test_pieces_that_are_made_one_at_a_time_are_not_kept(place):
    """The data of many tensors need not be in memory together."""
    alive = most = 0

    class Data(bytes):
        def __init__(self, *_: object) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    with new(place) as out, small():
        fill((Data(CHUNK) for _ in range(100)), out)
        assert content(out) == bytes(100 * CHUNK)
    assert most < 10
