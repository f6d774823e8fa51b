"""Shapes and values for a set of inputs, drawn together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from .uses import Use, constrain, length
from .values import Maker, Shape, all_values, below_limits, moderate_special, special, special_values

Known = tuple["int | None", ...]

# For inputs of unknown rank; the first is the one that most operators take.
_RANKS: tuple[Shape, ...] = ((2, 3, 4), (2, 3, 4, 5), (3, 4), (5,), ())
# Written with and without what onnx's types leave open: case, spaces, separators, numbers.
_TEXTS = ("", "a", "b", "Abc", "1.5", "ä", "a b", " a,b ")


def ranks() -> list[int]:
    """The ranks that inputs of unknown rank get, in turn."""
    return [len(shape) for shape in _RANKS]


@dataclasses.dataclass(frozen=True)
class Draw:
    """One set of inputs and what is particular about it."""

    what: str
    feeds: dict[str, Any]


class Plan:
    """How large each input is under each sizing, and how its values are made."""

    def __init__(
        self,
        inputs: Mapping[str, onnx.TypeProto],
        seed: int,
        uses: Mapping[str, Sequence[Use]],
        known: Mapping[str, Known],
        values: Sequence[float],
        overflow: bool,
        limits: bool,
        alike: bool,
    ):
        self.overflow, self.limits, self.alike = overflow, limits, alike
        self.inputs, self.seed, self.uses, self.known, self.values = inputs, seed, uses, known, values
        tensors = [t for t in map(_tensor, inputs.values()) if t is not None]
        self.rankless = any(not t.HasField("shape") for t in tensors)
        self.flexible = any(not (d.HasField("dim_value") and d.dim_value >= 0) for t in tensors for d in t.shape.dim)
        self.count = 0
        # Few dimensions leave room for larger ones, which hold more values.
        rank = max((len(t.shape.dim) for t in tensors), default=0)
        self.base = {1: 17, 2: 6}.get(rank, 2)

    def shape(self, name: str, sizing: int) -> Shape:
        """Sizing 0 and 1: unknown dimensions alike; 2: others; 3: all 1; 4: unnamed ones unequal; 5: all 0."""
        tensor = _tensor(self.inputs[name])
        if tensor is None:
            return ()
        if not tensor.HasField("shape"):
            shape = _RANKS[sizing - 10] if sizing >= 10 else _RANKS[0]
            return {2: (5, 2, 3), 3: (1,) * len(shape), 5: (2, 0, 4)}.get(sizing, shape)
        names = sorted({d.dim_param for t in map(_tensor, self.inputs.values()) if t for d in t.shape.dim})
        wanted = self._wanted_length(name) if len(tensor.shape.dim) == 1 else None
        dims = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            elif wanted is not None:
                dims.append(wanted)
            elif sizing in (3, 5):
                dims.append({3: 1, 5: 0}[sizing])
            elif dim.dim_param:
                # Named dimensions get sizes of their own, so that one cannot stand for another.
                number = 0 if self.alike else names.index(dim.dim_param)
                dims.append(self.base + (number + (3 if sizing == 2 else 0)) % 5)
            else:
                dims.append(self.base + {2: 3, 4: (axis + len(name)) % 4}.get(sizing, 1))
        return tuple(dims)

    def _wanted_length(self, name: str) -> int | None:
        """How many numbers a list must have (pads: two for each dimension), where the types leave it open."""
        wanted = [length(use, self._dims(use.node.input)) for use in self.uses.get(name, ())]
        return next((n for n in wanted if n is not None), None)

    def _dims(self, names: Sequence[str]) -> list[Known | None]:
        def dims(name: str) -> Known | None:
            tensor = _tensor(self.inputs[name]) if name in self.inputs else None
            if tensor is None:
                return self.known.get(name)
            return (
                tuple(d.dim_value or None for d in tensor.shape.dim)
                if tensor.HasField("shape")
                else (None,) * len(_RANKS[0])
            )

        return [dims(name) for name in names]

    def elements(self, sizing: int) -> int:
        """Of the largest input."""
        return max((int(np.prod(self.shape(name, sizing), dtype=np.int64)) for name in self.inputs), default=0)

    def draw(self, what: str, sizing: int, make: Maker, rotation: int = 0) -> Draw:
        """All inputs, each with a random generator of its own."""
        self.count += 1
        shapes = {name: self.shape(name, sizing) for name in self.inputs}
        feeds: dict[str, Any] = {}
        for number, (name, type_) in enumerate(self.inputs.items()):
            random = np.random.default_rng([self.seed, self.count, number])
            feeds[name] = self._value(name, type_, shapes, random, make, rotation, number)
        return Draw(what, feeds)

    def _value(
        self,
        name: str,
        type_: onnx.TypeProto,
        shapes: Mapping[str, Shape],
        random: np.random.Generator,
        make: Maker,
        rotation: int,
        number: int,
    ) -> Any:
        kind = type_.WhichOneof("value")
        if kind == "optional_type":
            inner = type_.optional_type.elem_type
            return self._value(name, inner, shapes, random, make, rotation, number) if self.count % 2 else None
        if kind == "sequence_type":
            element = type_.sequence_type.elem_type
            shape = _fixed(element)
            count = 3 if self.count % 4 else 1
            return [self._array(element, name, shape, random, make, rotation, number, shapes) for _ in range(count)]
        if kind != "tensor_type":
            raise NotImplementedError(f"no samples are made for input {name} of kind {kind or 'unknown'}")
        return self._array(type_, name, shapes[name], random, make, rotation, number, shapes)

    def _array(
        self,
        type_: onnx.TypeProto,
        name: str,
        shape: Shape,
        random: np.random.Generator,
        make: Maker,
        rotation: int,
        number: int,
        shapes: Mapping[str, Shape],
    ) -> np.ndarray:
        element = type_.tensor_type.elem_type
        if element == onnx.TensorProto.UNDEFINED:
            raise NotImplementedError(f"the element type of input {name} is not known")
        if element == onnx.TensorProto.STRING:
            value = np.asarray(random.choice(np.array(_TEXTS, dtype=object), shape))
            dtype = value.dtype
        elif (dtype := onnx.helper.tensor_dtype_to_np_dtype(element)) == np.bool_:
            # A single condition takes both values in turn, several of them take every combination.
            one = np.prod(shape, dtype=np.int64) == 1
            value = np.full(shape, (self.count >> number) & 1, dtype=bool) if one else random.random(shape) < 0.5
        else:
            value = make(random, dtype, shape, self.values, rotation, number)
            value = value if self.limits else below_limits(value)
        for use in self.uses.get(name, ()):
            value = constrain(use, value, random, self._shapes(shapes))
        return value

    def _shapes(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        whole = {name: tuple(n for n in dims if n is not None) for name, dims in self.known.items() if None not in dims}
        return {**whole, **shapes}

    def special_values(self, what: str, most: int) -> Iterator[Draw]:
        """As many draws as it takes for the smallest input to hold every special value."""
        make = special if self.overflow else moderate_special
        pools = [len(special_values(d, self.values)) for d in map(_numeric, self.inputs.values()) if d is not None]
        if not pools:
            return
        sizes = [np.prod(self.shape(name, 0), dtype=np.int64) for name, t in self.inputs.items() if _numeric(t)]
        rounds = -(-max(pools) // max(int(min(sizes)), 1))
        if len(pools) > 1:
            rounds = max(rounds, 8)  # for more pairs
        for number in range(min(rounds, most)):
            # Rotations far apart when there are more than fit, so that a part of them still spans the list.
            rotation = number * max(pools) // min(rounds, most)
            yield self.draw(what, 0, make, rotation)

    def every_value(self) -> Iterator[Draw]:
        """All bit patterns of the one 8 or 16 bit input, in as few draws as its shape allows (64 at most)."""
        (name, type_), *others = self.inputs.items()
        dtype = _numeric(type_)
        if others or dtype is None or dtype.itemsize > 2:
            return
        patterns = all_values(dtype) if self.limits else below_limits(all_values(dtype))
        tensor = _tensor(type_)
        assert tensor is not None
        shape = list(self.shape(name, 0)) if tensor.HasField("shape") else [patterns.size]
        dynamic = [
            i
            for i, d in enumerate(tensor.shape.dim)
            if not (d.HasField("dim_value") and d.dim_value >= 0) and not d.dim_param
        ]
        dynamic += [i for i, d in enumerate(tensor.shape.dim) if d.dim_param]
        if dynamic:
            shape[dynamic[0]] = 1
            shape[dynamic[0]] = -(-patterns.size // max(int(np.prod(shape, dtype=np.int64)), 1))
        size = int(np.prod(shape, dtype=np.int64))
        if size == 0:
            return
        rounds = min(-(-patterns.size // size), 64)
        if rounds * size < patterns.size:
            patterns = np.random.default_rng([self.seed, 7]).permutation(patterns)
        for number in range(rounds):
            value = np.resize(np.roll(patterns, -number * size), size).reshape(shape)
            for use in self.uses.get(name, ()):
                value = constrain(use, value, np.random.default_rng(self.seed), self._shapes({name: tuple(shape)}))
            yield Draw("every value of the type", {name: value})


def _tensor(type_: onnx.TypeProto) -> onnx.TypeProto.Tensor | None:
    return type_.tensor_type if type_.HasField("tensor_type") else None


def _numeric(type_: onnx.TypeProto) -> np.dtype | None:
    tensor = _tensor(type_)
    if tensor is None or tensor.elem_type in (0, onnx.TensorProto.STRING, onnx.TensorProto.BOOL):
        return None
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)


def _fixed(type_: onnx.TypeProto) -> Shape:
    if not type_.tensor_type.HasField("shape"):
        return _RANKS[2]
    return tuple(d.dim_value or 3 for d in type_.tensor_type.shape.dim)
