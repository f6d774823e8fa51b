"""Sequences and optionals below the opsets that have them: the graph does without where it tells what they hold."""

from __future__ import annotations

import dataclasses

import numpy as np
from onnx import numpy_helper

from relu_tools.adapters import KEEP, adapter
from relu_tools.adapters.indexing import from_front, known_size, scalar
from relu_tools.report import RefusedError


@dataclasses.dataclass(frozen=True)
class Elements:
    """What a sequence holds: these values, or, with an `order`, as many as `count` of them by the numbers in that."""

    values: list[str]
    order: str | None = None
    count: int = 0

    def __len__(self) -> int:
        return self.count if self.order else len(self.values)


def elements(op, sequence) -> Elements:
    """What a sequence holds, found from what makes it."""
    found = op.maker(sequence)
    if found is None:
        raise _untold(sequence)
    kind, inputs, attributes = found
    if kind in ("Identity", "Optional", "OptionalGetElement") and inputs[0]:
        return elements(op, inputs[0])
    if kind == "SequenceEmpty":
        return Elements([])
    if kind == "SequenceConstruct":
        return Elements(inputs)
    if kind in ("SequenceInsert", "SequenceErase"):
        change = _inserted if kind == "SequenceInsert" else _erased
        return change(op, elements(op, inputs[0]), *inputs[1:])
    if kind == "SplitToSequence":
        return Elements(_split(op, *inputs, **attributes))
    if kind == "SequenceMap":
        place = op.maker_output(sequence)
        return Elements([values[place] for values in _mapped(op, inputs, attributes["body"])])
    raise _untold(sequence)


def _untold(sequence) -> RefusedError:
    return RefusedError(f"the graph does not tell what '{sequence}' holds")


def _place(op, position, count: int, last: int):
    """Where a position points to: a number where it is known, else a value. None where there is no such place."""
    known = np.array(last) if not position else op.known(position)
    if known is None:
        return from_front(op, scalar(op, position), count)
    place = int(known.reshape(-1)[0])
    place += count if place < 0 else 0
    return place if 0 <= place <= last else None


def _inserted(op, held: Elements, tensor, position) -> Elements:
    count = len(held)
    place = _place(op, position, count, count)
    if place is None:
        raise RefusedError("an element is put where there is no place")
    if isinstance(place, int) and not held.order:
        return Elements([*held.values[:place], tensor, *held.values[place:]])
    numbers = np.arange(count + 1)
    taken = op.Where(op.Less(numbers, _int64(place)), numbers, np.maximum(numbers - 1, 0))
    taken = op.Where(op.Equal(numbers, _int64(place)), np.int64(count), taken)
    order = op.Concat(held.order or np.arange(count), np.array([len(held.values)]), axis=0)
    return Elements([*held.values, tensor], op.Gather(order, taken), count + 1)


def _erased(op, held: Elements, position) -> Elements:
    count = len(held)
    place = _place(op, position, count, count - 1)
    if place is None:
        raise RefusedError("an element is taken from where there is none")
    if isinstance(place, int) and not held.order:
        return Elements(held.values[:place] + held.values[place + 1 :])
    numbers = np.arange(count - 1)
    taken = op.Where(op.Less(numbers, _int64(place)), numbers, numbers + 1)
    return Elements(held.values, op.Gather(held.order or np.arange(count), taken), count - 1)


def _int64(place):
    return np.int64(place) if isinstance(place, int) else place


def _split(op, input, split, *, axis, keepdims) -> list[str]:
    """The slices that SplitToSequence makes."""
    axis = axis % op.rank(input) if axis < 0 else axis
    lengths, total = op.known(split), known_size(op, input, axis)
    if split and lengths is None:
        parts = known_size(op, split, 0) if op.known_shape(split) else None
        if parts is None:
            raise RefusedError(f"the number of parts is not known: '{split}' must be a constant")
        bounds = [np.array([0])]
        for k in range(parts):
            bounds.append(op.Add(bounds[-1], op.Slice(split, np.array([k]), np.array([k + 1]))))
    else:
        if total is None and (lengths is None or lengths.ndim == 0):
            raise RefusedError(f"the number of parts is not known: neither is the size of axis {axis} of '{input}'")
        if lengths is None or lengths.ndim == 0:
            part = 1 if lengths is None else int(lengths)
            ends = [*range(part, total, part), total] if total else []
        else:
            ends = np.cumsum(lengths).tolist()
        bounds = [np.array([bound]) for bound in [0, *ends]]
    parts = [op.Slice(input, a, b, np.array([axis])) for a, b in zip(bounds, bounds[1:], strict=False)]
    return parts if split or keepdims else [op.Squeeze(part, np.array([axis])) for part in parts]


def _mapped(op, inputs, body) -> list[tuple[str, ...]]:
    """The results of SequenceMap's graph for one element after the other."""
    held = {value: elements(op, value) for value in inputs if op.text(value).startswith("seq(")}
    lists = {value: _values(op, sequence) for value, sequence in held.items()}
    count = len(lists[inputs[0]])
    return [op.splice(body, *(lists[x][k] if x in lists else x for x in inputs)) for k in range(count)]


def _values(op, held: Elements) -> list[str]:
    if not held.order:
        return held.values
    row = _row(op, held.values)
    return [op.Gather(row, op.Gather(held.order, np.array(k)), axis=0) for k in range(held.count)]


def _row(op, values: list[str]) -> str:
    """All values as one tensor, from which one can be gathered by its number."""
    shapes = [op.known_shape(value) for value in values]
    if any(shape != shapes[0] or None in (shape or [None]) for shape in shapes[1:]):
        raise RefusedError("an element is taken at a position that is no constant, and not all have one known shape")
    return op.Concat(*(op.Unsqueeze(value, np.array([0])) for value in values), axis=0)


# --- sequences ---------------------------------------------------------------------------------
@adapter("SequenceConstruct SequenceEmpty SequenceInsert SequenceErase SplitToSequence", 11, None)
def sequence(op, *inputs, **attributes):
    """11 is their first version.

    What reads an element finds it where it came from; a sequence that is not told by the graph is refused there.
    """
    return ()


@adapter("SequenceAt", 11, None, opset=13)
def sequence_at(op, input_sequence, position):
    """11 is its first version.

    The element stands for itself; at a position that is no constant it is gathered from all of them, if they are alike.
    """
    held = elements(op, input_sequence)
    place = _place(op, position, len(held), len(held) - 1)
    if place is None:
        raise RefusedError("an element is taken from where there is none")
    if isinstance(place, int) and not held.order:
        return op.Identity(held.values[place])
    number = op.Gather(held.order, _int64(place)) if held.order else place
    return op.Gather(_row(op, held.values), number, axis=0)


@adapter("SequenceLength", 11, None)
def sequence_length(op, input_sequence):
    """11 is its first version.

    It is a constant.
    """
    return op.Constant(value=numpy_helper.from_array(np.array(len(elements(op, input_sequence)))))


@adapter("ConcatFromSequence", 11, None, opset=13)
def concat_elements(op, input_sequence, *, axis, new_axis):
    """11 is its first version.

    It is Concat of the elements, each with one axis more where that is new.
    """
    values = _values(op, elements(op, input_sequence))
    if not values:
        raise RefusedError("nothing is concatenated")
    if new_axis:
        values = [op.Unsqueeze(value, np.array([axis])) for value in values]
    return op.Concat(*values, axis=axis)


@adapter("SequenceMap", 17, None)
def sequence_map(op, input_sequence, *additional_inputs, body):
    """17 is its first version.

    From 13 on a Loop carries the sequence along. Before, the graph is repeated for each element.
    """
    if op.version("Loop") >= 13:
        return KEEP
    if not op.version("SequenceConstruct"):
        return ()
    try:
        results = _mapped(op, [input_sequence, *additional_inputs], body)
    except RefusedError as error:
        raise RefusedError(f"before 13 no Loop carries a sequence, and {error.reason}", error.advice) from None
    return tuple(op.SequenceConstruct(*values) for values in zip(*results, strict=True))


# --- optionals ---------------------------------------------------------------------------------
@adapter("Optional", 15, None)
def optional(op, input, *, type):
    """15 is its first version.

    What asks for the value finds it where it came from.
    """
    return ()


@adapter("OptionalHasElement", 15, None)
def has_element(op, input):
    """15 is its first version.

    It is a constant, if the graph makes the optional itself.
    """
    return op.Constant(value=numpy_helper.from_array(np.array(_inner(op, input) is not None)))


@adapter("OptionalGetElement", 15, None)
def get_element(op, input):
    """15 is its first version.

    The value stands for itself, if the graph makes the optional itself.
    """
    value = _inner(op, input)
    if value is None:
        raise RefusedError("a value is asked for where there is none")
    # Below 11 there are no sequences either: what reads the element of one finds it there.
    return () if op.text(value).startswith("seq(") and not op.version("SequenceAt") else op.Identity(value)


def _inner(op, optional) -> str | None:
    kind, inputs, _ = op.maker(optional) or ("", [], {})
    if kind == "Identity":
        return _inner(op, inputs[0])
    if kind != "Optional":
        raise RefusedError(f"the graph does not tell whether '{optional}' holds a value")
    return inputs[0]
