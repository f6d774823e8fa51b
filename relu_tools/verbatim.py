"""The bytes of messages that nobody changed, as they were in their file.

Protobuf writes fields in an order of its own, unknown ones last, and lengths and numbers in their shortest form. Files
that it wrote itself come out the same; in others each unchanged message is put back as it was.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import onnx

from relu_tools import wire

_MESSAGE = 2  # the wire type of what has a length
_Field = tuple[int, int, int, int]


class Verbatim:
    """What the messages of a model's file look like, by what protobuf makes of them."""

    def __init__(self, original: bytes, canonical: bytes):
        self._original = original
        # Messages of two kinds may look alike to protobuf.
        self._found: defaultdict[tuple[str, bytes], list[tuple[int, int]]] = defaultdict(list)
        self._sizes: set[int] = set()
        if original != canonical:
            root = onnx.ModelProto.DESCRIPTOR
            self._compare((0, len(original)), canonical, (0, len(canonical)), root)

    def restore(self, model: bytes) -> bytes:
        """A serialized model with each message that the file holds in other words in those words."""
        if not self._found:
            return model
        left = {key: deque(places) for key, places in self._found.items()}
        return self._restored(model, 0, len(model), onnx.ModelProto.DESCRIPTOR, left)

    def _compare(self, mine: tuple[int, int], canonical: bytes, theirs: tuple[int, int], kind: Any) -> None:
        """Notes what differs. Messages that the file gives in pieces have no counterparts, and are not looked into."""
        ours: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        others: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for fields, data, span in ((ours, self._original, mine), (others, canonical, theirs)):
            for number, _, start, end in _messages(data, *span, kind):
                fields[number].append((start, end))
        for number, places in ours.items():
            if len(places) != len(others[number]):
                continue
            inner = wire.message_fields(kind)[number]
            for (start, end), (at, stop) in zip(places, others[number], strict=True):
                content = canonical[at:stop]
                if self._original[start:end] != content:
                    self._found[_key(inner, content)].append((start, end))
                    self._sizes.add(len(content))
                    self._compare((start, end), canonical, (at, stop), inner)

    def _restored(self, data: bytes, position: int, end: int, kind: Any, left: dict) -> bytes:
        pieces = []
        kept = position
        for number, prefix, start, stop in _messages(data, position, end, kind):
            inner = wire.message_fields(kind)[number]
            places = left.get(_key(inner, data[start:stop])) if stop - start in self._sizes else None
            if places:
                # One that the model holds more often than the file did looks like the last of them.
                a, b = places.popleft() if len(places) > 1 else places[0]
                content = self._original[a:b]
            else:
                content = self._restored(data, start, stop, inner, left)
                if content == data[start:stop]:
                    continue
            pieces += [data[kept:prefix], wire.encode(len(content)), content]
            kept = stop
        return b"".join([*pieces, data[kept:end]])


def _key(kind: Any, content: bytes) -> tuple[str, bytes]:
    import hashlib  # Few files need it, and it takes OpenSSL along.

    return kind.full_name, hashlib.sha256(content).digest()


def _messages(data: bytes, position: int, end: int, kind: Any) -> Iterator[_Field]:
    """The messages in a message's fields: number, where the length stands, where the content begins and ends."""
    kinds = wire.message_fields(kind)
    for tag, prefix, start, stop in wire.fields(data, position, end):
        if tag & 7 == _MESSAGE and tag >> 3 in kinds:
            yield tag >> 3, prefix, start, stop
