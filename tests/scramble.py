"""Protobuf messages written in ways that protobuf itself would not write them, and that mean the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import onnx

from relu_tools import wire

UNKNOWN = b"\xfa\xf0\x04\x07unknown"  # field 9999, in none of the messages


def fields(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, the bytes before the content (tag and length), content, of each field."""
    start = 0
    for tag, prefix, content, end in wire.fields(data, 0, len(data)):
        yield (
            tag >> 3,
            data[start : content if tag & 7 == 2 else prefix],
            data[content if tag & 7 == 2 else prefix : end],
        )
        start = end


def scrambled(data: bytes, chance: random.Random, kind=onnx.ModelProto.DESCRIPTOR) -> bytes:
    """A message with its fields in another order, those of one number in theirs, unknown fields among them, and so on
    for the messages within it."""
    kinds = {field.number: field.message_type for field in kind.fields if field.message_type is not None}
    by_number: dict[int, list[bytes]] = {}
    for number, head, content in fields(data):
        if number in kinds:
            content = scrambled(content, chance, kinds[number])
            tag = wire.encode(number << 3 | 2)
            head = tag + wire.encode(len(content))
        by_number.setdefault(number, []).append(head + content)
    if chance.random() < 0.3:
        by_number.setdefault(9999, []).append(UNKNOWN)
    order = [number for number, entries in by_number.items() for _ in entries]
    chance.shuffle(order)
    return b"".join(by_number[number].pop(0) for number in order)
