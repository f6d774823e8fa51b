"""The strings of many nodes at once, in columns: where each lies in a serialized graph, and which of them are equal.

No string becomes an object: numpy reads the same field of all nodes together, and compares names by eight bytes each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from relu_tools import wire

_WORD = 8
# What a word keeps of its first bytes, by how many they are.
_KEPT = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], "<u8")
# Bytes of a name, and fields of a kind in a node: each word of the longest takes a step, and each field of the most.
_LONGEST = 1024
_MOST = 256
_ODD, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Column(NamedTuple):
    """Strings, each an element of arrays of shape [n]: the number of the node, the first byte, the size in bytes."""

    node: np.ndarray
    start: np.ndarray
    size: np.ndarray

    def take(self, which: Any) -> Column:
        return Column(*(part[which] for part in self))


class Columns:
    """The strings of nodes, of which each lies from one of `begin` to one of `end`, both of shape [n].

    `at` is where the reading of each has come. `given` are names that no node makes, of node -1, and `wanted` some that
    a node behind all would read.
    """

    def __init__(self, nodes: bytes, starts: Sequence[int], given: Collection[bytes], wanted: Collection[bytes]):
        """`starts` are the bytes of `nodes` at which a field, of one byte's tag, begins that holds a node."""
        # What is looked at past the end is no string.
        self._bytes = b"".join((nodes, *given, *wanted, bytes(_WORD + 1)))
        self._array = np.frombuffer(self._bytes, np.uint8)
        self._words = np.ndarray(len(self._bytes) - _WORD, "<u8", self._bytes, strides=(1,))
        self.begin, size = self._measured(np.array(starts, np.int64))
        self.at, self.end = self.begin.copy(), self.begin + size
        sizes = np.array([len(name) for name in (*given, *wanted)], np.int64)
        number = np.repeat([-1, len(starts)], [len(given), len(wanted)])
        names = Column(number, len(nodes) + sizes.cumsum() - sizes, sizes)
        self.given, self.wanted = names.take(number < 0), names.take(number >= 0)

    def read(self, tag: int, *, many: bool = False) -> Column:
        """The string of each node of which the next field has that tag; those of all such fields if there are `many`.

        Raises WireError where a length is not written as protobuf does, or where there are too many.
        """
        nodes = np.arange(len(self.at))
        found = []
        while nodes.size:
            if len(found) > _MOST:
                raise wire.WireError(f"a node has more than {_MOST} fields of a kind")
            at = self.at[nodes]
            has = (self._array[at] == tag) & (at < self.end[nodes])
            nodes = nodes[has]
            start, size = self._measured(at[has])
            self.at[nodes] = start + size
            # Where a string runs past the end of its node, that is told by `at`.
            inside = self.at[nodes] <= self.end[nodes]
            found.append(Column(nodes, start, size).take(inside))
            nodes = nodes[inside] if many else nodes[:0]
        return Column(*map(np.concatenate, zip(*found, strict=True))) if found else self.given.take([])

    def is_ascii(self) -> np.ndarray:
        """Whether all bytes of a node are ASCII, [n]."""
        ascii_ = np.ones(len(self.begin), bool)
        if not self._bytes.isascii():
            high = np.flatnonzero(self._array > 0x7F)
            node = np.searchsorted(self.begin, high, "right") - 1
            ascii_[node[(node >= 0) & (high < self.end[node])]] = False
        return ascii_

    def counted(self, column: Column) -> dict[bytes, int]:
        """How often each string is there; of different ones there are few."""
        _, first, group, counts = np.unique(
            self._hashes(column), return_index=True, return_inverse=True, return_counts=True
        )
        if not self._equal(column.take(first[group]), column):
            raise wire.WireError("two strings cannot be told apart")
        places = zip(*(part[first].tolist() for part in column[1:]), counts.tolist(), strict=True)
        return {self._bytes[start : start + size]: count for start, size, count in places}

    def are_in_order(self, made: Sequence[Column], read: Sequence[Column]) -> bool:
        """Whether the names made differ from one another, and each that is read was made by a node before."""
        makers, readers = (_named(columns) for columns in (made, read))
        found = _found(self._hashes(makers), self._hashes(readers))
        if found is None:
            return False
        maker = makers.take(found)
        return bool((maker.node < readers.node).all()) and self._equal(maker, readers)

    def _measured(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the strings in the fields at these bytes begin, and their sizes."""
        size, begin = self._array[at + 1].astype(np.int64), at + 2
        for shift in (7, 14, 21):
            # The bit that another byte follows is still there.
            more = size >= 1 << shift
            if not more.any():
                break
            byte = self._array[begin].astype(np.int64)
            if (more & (byte == 0)).any():
                raise wire.WireError("a length takes more bytes than it needs")
            begin = begin + more
            size = np.where(more, size & (1 << shift) - 1 | byte << shift, size)
        return begin, size

    def _hashes(self, column: Column) -> np.ndarray:
        hashes = column.size.astype(np.uint64) * _ODD
        for offset, which in _steps(column.size):
            mixed = (hashes[which] ^ self._word(column, offset, which)) * _ODD
            hashes[which] = mixed ^ mixed >> _HALF
        return hashes

    def _equal(self, one: Column, other: Column) -> bool:
        return bool((one.size == other.size).all()) and all(
            (self._word(one, offset, which) == self._word(other, offset, which)).all()
            for offset, which in _steps(one.size)
        )

    def _word(self, column: Column, offset: int, which: Any) -> np.ndarray:
        """The bytes from `offset` on, at most eight, of strings that go on there, as numbers."""
        return self._words[column.start[which] + offset] & _KEPT[(column.size[which] - offset).clip(max=_WORD)]


def _named(columns: Sequence[Column]) -> Column:
    """All strings but empty ones, which stand for nothing."""
    every = Column(*map(np.concatenate, zip(*columns, strict=True)))
    return every if every.size.all() else every.take(every.size > 0)


def _found(hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray | None:
    """Which of the hashes each wanted one is, [wanted]; None where two are the same, or a wanted one is not there.

    Some bits of a hash are its place in a table. One whose place is taken looks for another by other bits.
    """
    found = np.full(len(wanted), -1)
    if not hashes.size:
        return None if wanted.size else found
    bits = len(hashes).bit_length() + 2
    table = np.empty(1 << bits, np.int64)
    left, asking = np.arange(len(hashes)), np.arange(len(wanted))
    for shift in range(64 - bits, -1, -7):
        table.fill(-1)
        place = _bits(hashes[left], shift, bits)
        table[place] = left
        there = table[place]
        left, there = left[there != left], there[there != left]
        if (hashes[there] == hashes[left]).any():
            return None
        there = table[_bits(wanted[asking], shift, bits)]
        hit = (there >= 0) & (hashes[there] == wanted[asking])
        found[asking[hit]] = there[hit]
        asking = asking[~hit]
        if not left.size:
            break
    return None if left.size or asking.size else found


def _bits(hashes: np.ndarray, shift: int, count: int) -> np.ndarray:
    return (hashes >> np.uint64(shift) & np.uint64((1 << count) - 1)).astype(np.int64)


def _steps(sizes: np.ndarray) -> Iterator[tuple[int, Any]]:
    """By how many bytes to go into strings to have seen them all, and which are as long."""
    longest = int(sizes.max(initial=0))
    if longest > _LONGEST:
        raise wire.WireError(f"a name takes {longest} bytes")
    for offset in range(0, longest, _WORD):
        longer = sizes > offset
        yield offset, slice(None) if longer.all() else np.flatnonzero(longer)
