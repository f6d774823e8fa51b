"""Inputs for a model: random, special, of several sizes, and for small types every value there is.

What is known about the use of an input (an index, a divisor, a shape ...) keeps the values where the
specification defines a result.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from .compare import is_float

Shape = tuple[int, ...]

# For inputs of unknown rank; the first is the one that most operators take.
_RANKS: tuple[Shape, ...] = ((2, 3, 4), (2, 3, 4, 5), (3, 4), (5,), ())
_LARGE = 1 << 20
SPECIAL, WIDE = "special values", "wide values"


@dataclasses.dataclass(frozen=True)
class Use:
    """A node and the position at which it takes a value."""

    node: onnx.NodeProto
    index: int


@dataclasses.dataclass(frozen=True)
class Draw:
    """One set of inputs and what is particular about it."""

    what: str
    feeds: dict[str, Any]


def draws(
    inputs: Mapping[str, onnx.TypeProto],
    seed: int = 0,
    *,
    uses: Mapping[str, Sequence[Use]] | None = None,
    constants: Mapping[str, Shape] | None = None,
    values: Sequence[float] = (),
    every_value: bool = False,
    overflow: bool = True,
) -> Iterator[Draw]:
    """Sets of inputs by name, the same for the same seed.

    `uses` is what `find_uses` returns; `constants` are the shapes of what else those nodes take; `values` are numbers
    at which the model may change its mind (thresholds), which take part with their neighbours; `every_value`
    asks for every value of a single 8 or 16 bit input. Without `overflow` no value is so large that sums and
    products leave the type's range, and NaN and infinity come one at a time among plain values: two equal
    formulas over many elements may overflow at different places.
    """
    plan = _Plan(inputs, seed, uses or {}, constants or {}, values, overflow)
    large = plan.elements(0) > _LARGE
    yield plan.draw("plain values", 0, _plain)
    if not inputs:
        return
    if every_value:
        yield from plan.every_value()
    yield from plan.special_values(1 if large else 24)
    if large:
        return
    yield plan.draw("plain values", 1, _plain)
    yield plan.draw(WIDE, 0, _wide if overflow else _moderate)
    for lone in () if overflow else (np.nan, np.inf, -np.inf):
        yield plan.draw(f"a single {lone}", 0, functools.partial(_with_one, lone))
    if plan.flexible:
        yield plan.draw("other sizes", 2, _plain)
        yield plan.draw("dynamic sizes of 1", 3, _plain)
        yield plan.draw("unequal dynamic sizes", 4, _plain)
    for rank in range(1, len(_RANKS)) if plan.rankless else ():
        yield plan.draw(f"rank {len(_RANKS[rank])}", 10 + rank, _plain)
    if plan.flexible:
        yield plan.draw("dynamic sizes of 0", 5, _plain)


def find_uses(graph: onnx.GraphProto) -> dict[str, list[Use]]:
    """The nodes that take each value, through nodes that only move or recast it, inside subgraphs too."""
    found: dict[str, list[Use]] = {}

    def walk(graph: onnx.GraphProto) -> None:
        for node in reversed(graph.node):
            for attribute in node.attribute:
                for subgraph in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else ():
                    walk(subgraph)
            for index, name in enumerate(node.input):
                found.setdefault(name, []).append(Use(node, index))
            if node.op_type in _MOVERS and node.output[0] in found:
                found[node.input[0]] += found[node.output[0]]

    walk(graph)
    return found


_MOVERS = {"Identity", "Cast", "CastLike", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Concat"}


class _Plan:
    def __init__(
        self,
        inputs: Mapping[str, onnx.TypeProto],
        seed: int,
        uses: Mapping[str, Sequence[Use]],
        constants: Mapping[str, Shape],
        values: Sequence[float],
        overflow: bool,
    ):
        self.overflow = overflow
        self.inputs, self.seed, self.uses, self.constants, self.values = inputs, seed, uses, constants, values
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
        dims = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            elif sizing in (3, 5):
                dims.append({3: 1, 5: 0}[sizing])
            elif dim.dim_param:
                # Named dimensions get sizes of their own, so that one cannot stand for another.
                dims.append(self.base + (names.index(dim.dim_param) + (3 if sizing == 2 else 0)) % 5)
            else:
                dims.append(self.base + {2: 3, 4: (axis + len(name)) % 4}.get(sizing, 1))
        return tuple(dims)

    def elements(self, sizing: int) -> int:
        return max((int(np.prod(self.shape(name, sizing), dtype=np.int64)) for name in self.inputs), default=0)

    def draw(self, what: str, sizing: int, make: Callable[..., np.ndarray], rotation: int = 0) -> Draw:
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
        make: Callable[..., np.ndarray],
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
            return [self._array(element, name, shape, random, make, rotation, number, shapes) for _ in range(3)]
        if kind != "tensor_type":
            raise NotImplementedError(f"no samples are made for input {name} of kind {kind or 'unknown'}")
        return self._array(type_, name, shapes[name], random, make, rotation, number, shapes)

    def _array(
        self,
        type_: onnx.TypeProto,
        name: str,
        shape: Shape,
        random: np.random.Generator,
        make: Callable[..., np.ndarray],
        rotation: int,
        number: int,
        shapes: Mapping[str, Shape],
    ) -> np.ndarray:
        element = type_.tensor_type.elem_type
        if element == onnx.TensorProto.UNDEFINED:
            raise NotImplementedError(f"the element type of input {name} is not known")
        if element == onnx.TensorProto.STRING:
            return np.asarray(random.choice(np.array(["", "a", "b", "Abc", "1.5", "ä"], dtype=object), shape))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        if dtype == np.bool_:
            # A single condition takes both values in turn, several of them take every combination.
            one = np.prod(shape, dtype=np.int64) == 1
            value = np.full(shape, (self.count >> number) & 1, dtype=bool) if one else random.random(shape) < 0.5
        else:
            value = make(random, dtype, shape, self.values, rotation, number)
        for use in self.uses.get(name, ()):
            value = _constrain(use, value, random, shapes, self.constants)
        return value

    def special_values(self, most: int) -> Iterator[Draw]:
        """As many draws as it takes for the smallest input to hold every special value."""
        make = _special if self.overflow else _moderate_special
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
            yield self.draw(SPECIAL, 0, make, rotation)

    def every_value(self) -> Iterator[Draw]:
        """All bit patterns of the one 8 or 16 bit input, in as few draws as its shape allows (64 at most)."""
        (name, type_), *others = self.inputs.items()
        dtype = _numeric(type_)
        if others or dtype is None or dtype.itemsize > 2:
            return
        patterns = all_values(dtype)
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
                value = _constrain(use, value, np.random.default_rng(self.seed), {name: tuple(shape)}, self.constants)
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


# Values


def _plain(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Of the size that networks work with; a few are exactly where a threshold may be."""
    if dtype.kind == "c":
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
    if not is_float(dtype):
        low, high = integer_range(dtype)
        return random.integers(max(low, -10), min(high, 10), shape, endpoint=True).astype(dtype)
    value = np.asarray(random.standard_normal(shape) * 2)
    pool = np.array([0.0, 1.0, -1.0, 0.5, 2.0, *values])
    return np.where(random.random(shape) < 0.1, random.choice(pool, shape), value).astype(dtype)


def _wide(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Of every order of magnitude."""
    import ml_dtypes

    if dtype.kind == "c":
        return _plain(random, dtype, shape, values, rotation, number)
    if not is_float(dtype):
        low, high = integer_range(dtype)
        magnitude = np.exp2(random.uniform(0, np.log2(float(high)), shape))
        # Odd numbers show what a mantissa too short for them would drop.
        value = np.asarray(magnitude * 0.99).astype(np.int64 if low else np.uint64) | np.uint8(1)
        return np.asarray(value * random.choice([1, -1], shape) if low else value).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    low, high = np.log2(float(info.smallest_normal)) * 0.9, np.log2(float(info.max)) * 0.9
    return np.asarray(random.choice([1, -1], shape) * np.exp2(random.uniform(low, high, shape))).astype(dtype)


def _moderate(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    if not is_float(dtype):
        return _wide(random, dtype, shape, values, rotation, number)
    return np.asarray(random.choice([1, -1], shape) * np.exp2(random.uniform(-6, 2, shape))).astype(dtype)


def _with_one(
    lone: float,
    random: np.random.Generator,
    dtype: np.dtype,
    shape: Shape,
    values: Sequence[float],
    rotation: int,
    number: int,
) -> np.ndarray:
    value = _plain(random, dtype, shape, values, rotation, number)
    if is_float(dtype) and value.size and number == 0:
        value.flat[random.integers(value.size)] = lone
    return value


def _moderate_special(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    value = _special(random, dtype, shape, values, rotation, number)
    if not is_float(dtype):
        return value
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(value) <= dtype.type(3), value, dtype.type(1)).astype(dtype)


def _special(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Each special value in turn; a second input walks its list in another order, so that pairs differ."""
    if dtype.kind == "c":
        return _plain(random, dtype, shape, values, rotation, number)
    pool = special_values(dtype, values)
    if number:
        pool = random.permutation(pool)
    return np.resize(np.roll(pool, -rotation), shape) if np.prod(shape, dtype=np.int64) else np.empty(shape, dtype)


def integer_range(dtype: np.dtype) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    import ml_dtypes

    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def all_values(dtype: np.dtype) -> np.ndarray:
    """Every value of a type of at most 16 bits, every NaN too."""
    import ml_dtypes

    if is_float(dtype):
        return np.arange(1 << ml_dtypes.finfo(dtype).bits).astype(f"u{dtype.itemsize}").view(dtype)
    low, high = integer_range(dtype)
    return np.arange(low, high + 1).astype(dtype)


def special_values(dtype: np.dtype, values: Sequence[float] = ()) -> np.ndarray:
    """Of a numeric type: NaN, zeros, infinities, subnormals, limits, small numbers, and `values` with neighbours."""
    import ml_dtypes

    if not is_float(dtype):
        low, high = integer_range(dtype)
        wanted = [low, low + 1, high, high - 1, *range(-3, 4), 5, 10, -10, 100]
        # Where float, double and narrower integers stop being exact.
        edges = [sign << bits for bits in (7, 8, 15, 16, 24, 31, 32, 53) for sign in (1, -1)]
        wanted += [edge + step for edge in edges for step in (-1, 0, 1)]
        wanted += [int(v) + step for v in values if np.isfinite(v) for step in (-1, 0, 1)]
        return np.array(sorted({v for v in wanted if low <= v <= high}), dtype=dtype)
    info = ml_dtypes.finfo(dtype)
    tiny, small, eps, most = (float(x) for x in (info.smallest_subnormal, info.smallest_normal, info.eps, info.max))
    positive = [tiny, small, eps, 1.0, 1 + eps, 1 - eps / 2, 0.5, 1.5, 2.0, 2.5, 3.0, 6.0, 10.0, 88.0, 100.0, most]
    floats = [np.nan, 0.0, -0.0, np.inf, -np.inf, *positive, *(-v for v in positive)]
    result = np.array(floats).astype(dtype)
    near = np.array([v for v in {*values, *(-v for v in values)} if abs(v) <= most], dtype=np.float64).astype(dtype)
    if near.size:
        up, down = (np.nextafter(near, np.array(v, dtype)) for v in (np.inf, -np.inf))
        result = np.concatenate([result, near, up, down])
    bits = result.view(f"u{dtype.itemsize}")
    return result[np.sort(np.unique(bits, return_index=True)[1])]


# Uses


def _constrain(
    use: Use,
    value: np.ndarray,
    random: np.random.Generator,
    shapes: Mapping[str, Shape],
    constants: Mapping[str, Shape],
) -> np.ndarray:
    name, index = use.node.op_type, use.index
    rule = _USES.get((name, index)) or (_axes if name.startswith("Reduce") and index == 1 else None)
    if rule is None:
        return value
    first = use.node.input[0]
    data = shapes.get(first, constants.get(first))
    return np.asarray(rule(use.node, value, random, data), dtype=value.dtype)


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


_Rule = Callable[[onnx.NodeProto, np.ndarray, np.random.Generator, "Shape | None"], Any]


def _divisor(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """No integer by 0, and none by -1, by which the least integer cannot be divided."""
    if is_float(value.dtype) or value.dtype.kind == "c":
        return value
    return np.where((value == 0) | (value == (-1 if value.dtype.kind == "i" else 0)), value.dtype.type(3), value)


def _index(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    if not data:
        return np.zeros(value.shape)
    size = data[_attribute(node, "axis", 0)]
    return random.integers(-size, size, value.shape) if size else value


def _distinct_index(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """Along the axis every index once: what a second one does is not defined."""
    axis = _attribute(node, "axis", 0)
    if not data or not value.ndim:
        return np.zeros(value.shape)
    return np.argsort(random.random(tuple(data)), axis=axis)[tuple(slice(n) for n in value.shape)]


def _index_tuples(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    if not data or not value.ndim:
        return np.zeros(value.shape)
    begin = _attribute(node, "batch_dims", 0)
    sizes = np.array(data[begin : begin + value.shape[-1]])
    if node.op_type == "ScatterND":
        count = int(np.prod(value.shape[:-1]))
        flat = random.permutation(int(np.prod(sizes)))[:count]
        return np.stack(np.unravel_index(np.resize(flat, count), tuple(sizes)), -1).reshape(value.shape)
    return random.integers(0, np.maximum(sizes, 1), value.shape)


def _axes(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    rank = len(data) if data is not None else max(value.size, 1)
    if node.op_type == "Unsqueeze":
        rank += value.size
    if node.op_type == "Squeeze" and data is not None:
        ones = [i for i, n in enumerate(data) if n == 1]
        return np.resize(ones, value.shape) if ones else value
    return random.permutation(max(rank, value.size))[: value.size].reshape(value.shape)


def _signal_axis(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """Any but the last, which holds the real and imaginary parts."""
    return random.integers(0, len(data) - 1 if data is not None else 1, value.shape)


def _pads(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(0, 2, value.shape)


def _to_integer(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """A float outside the integer's range has no defined result; so has NaN."""
    to = _attribute(node, "to", 0)
    if isinstance(to, bytes):
        to = getattr(onnx.TensorProto, to.decode(), 0)
    if not is_float(value.dtype) or to in (0, onnx.TensorProto.STRING, onnx.TensorProto.BOOL):
        return value
    target = onnx.helper.tensor_dtype_to_np_dtype(to)
    if is_float(target) or target.kind == "c":
        return value
    low, high = integer_range(target)
    as_double = value.astype(np.float64)
    return np.where((as_double > low - 1) & (as_double < high), as_double, random.integers(0, 5, value.shape))


def _no_nan(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return np.where(np.isnan(value), value.dtype.type(1), value) if is_float(value.dtype) else value


def _moderate_size(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """None infinite, NaN or very large: neither are such places defined, nor what is lost in sums in any order."""
    if not is_float(value.dtype):
        return value
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(value) <= value.dtype.type(100), value, value.dtype.type(1))


def _batch(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(0, max(data[0], 1) if data else 1, value.shape)


def _distinct_places(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.permutation(value.size).reshape(value.shape)


def _not_negative(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return np.abs(value)


def _scale(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.uniform(0.05, 0.5, value.shape)


def _exponent(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return value if is_float(value.dtype) else random.integers(0, 3, value.shape)


def _small(low: int, high: int) -> _Rule:
    def rule(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
        return random.integers(low, high, value.shape, endpoint=True)

    return rule


def _target_shape(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """The shape that the data has, where the lengths agree, else all in one dimension."""
    if data is not None and len(data) == value.size:
        return np.array(random.permutation(data)).reshape(value.shape)
    return np.array([-1] + [1] * (value.size - 1))[: value.size].reshape(value.shape)


def _slice_step(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.choice([1, 2, -1], value.shape)


def _enlarging(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    """Scales, or the sizes that they make: the first two dimensions stay, the others double."""
    scales = np.where(np.arange(value.size) < 2, 1, 2).reshape(value.shape)
    if is_float(value.dtype):
        return scales
    return scales * np.array(data) if data is not None and len(data) == value.size else value


def _portions(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    if not data or not value.size:
        return value
    size = data[_attribute(node, "axis", 0)]
    cuts = np.sort(random.integers(0, size, value.size - 1, endpoint=True))
    return np.diff([0, *cuts, size])


def _lengths(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(1, max(data[0], 1) if data else 1, value.shape, endpoint=True)


def _class(node: onnx.NodeProto, value: np.ndarray, random: np.random.Generator, data: Shape | None) -> Any:
    return random.integers(0, max(data[1], 1) if data and len(data) > 1 else 1, value.shape)


_USES: dict[tuple[str, int], _Rule] = {
    ("ArgMax", 0): _no_nan,
    ("ArgMin", 0): _no_nan,
    ("BatchNormalization", 4): _not_negative,
    ("AffineGrid", 0): _moderate_size,
    ("AffineGrid", 1): _small(1, 3),
    ("BitShift", 1): _small(0, 7),
    ("BlackmanWindow", 0): _small(2, 9),
    ("Cast", 0): _to_integer,
    ("CenterCropPad", 1): _small(1, 6),
    ("Compress", 0): _no_nan,
    ("ConstantOfShape", 0): _small(1, 3),
    ("CumSum", 1): _small(0, 0),
    ("DFT", 0): _moderate_size,
    ("DFT", 1): _small(2, 5),
    ("DFT", 2): _signal_axis,
    ("DeformConv", 2): _moderate_size,
    ("DequantizeLinear", 1): _scale,
    ("Div", 1): _divisor,
    ("Dropout", 1): _scale,
    ("Dropout", 2): _small(0, 0),
    ("Expand", 1): _small(1, 1),
    ("Gather", 1): _index,
    ("GatherElements", 1): _index,
    ("GatherND", 1): _index_tuples,
    ("GlobalMaxPool", 0): _no_nan,
    ("GRU", 4): _lengths,
    ("GridSample", 1): _moderate_size,
    ("HammingWindow", 0): _small(2, 9),
    ("HannWindow", 0): _small(2, 9),
    ("Hardmax", 0): _no_nan,
    ("LSTM", 4): _lengths,
    ("Loop", 0): _small(0, 3),
    ("MaxPool", 0): _no_nan,
    ("MaxUnpool", 1): _distinct_places,
    ("MelWeightMatrix", 0): _small(2, 5),
    ("MelWeightMatrix", 1): _small(16, 32),
    ("MelWeightMatrix", 2): _small(8000, 16000),
    ("MelWeightMatrix", 3): _small(20, 90),
    ("MelWeightMatrix", 4): _small(1000, 3000),
    ("Mod", 1): _divisor,
    ("NegativeLogLikelihoodLoss", 1): _class,
    ("NonMaxSuppression", 0): _no_nan,
    ("NonMaxSuppression", 1): _no_nan,
    ("OneHot", 0): _small(0, 6),  # below 0, no runtime does what the text of 9 says
    ("OneHot", 1): _small(3, 6),
    ("Pad", 1): _pads,
    ("Pad", 3): _axes,
    ("Pow", 1): _exponent,
    ("QuantizeLinear", 0): _no_nan,
    ("QuantizeLinear", 1): _scale,
    ("RNN", 4): _lengths,
    ("Range", 0): _small(0, 2),
    ("Range", 1): _small(3, 9),
    ("Range", 2): _small(1, 2),
    ("Reshape", 1): _target_shape,
    ("Resize", 1): _enlarging,
    ("Resize", 2): _enlarging,
    ("Resize", 3): _enlarging,
    ("RoiAlign", 1): _moderate_size,
    ("RoiAlign", 2): _batch,
    ("STFT", 0): _moderate_size,
    ("STFT", 1): _small(1, 3),
    ("STFT", 2): _moderate_size,
    ("STFT", 3): _small(2, 5),
    ("Scatter", 1): _distinct_index,
    ("ScatterElements", 1): _distinct_index,
    ("ScatterND", 1): _index_tuples,
    ("SequenceAt", 1): _small(0, 2),
    ("SequenceErase", 1): _small(0, 1),
    ("SequenceInsert", 2): _small(0, 1),
    ("Slice", 1): _small(-2, 1),
    ("Slice", 2): _small(-1, 4),
    ("Slice", 3): _axes,
    ("Slice", 4): _slice_step,
    ("SoftmaxCrossEntropyLoss", 1): _class,
    ("Split", 1): _portions,
    ("Squeeze", 1): _axes,
    ("TensorScatter", 2): _small(0, 1),
    ("Tile", 1): _small(1, 2),
    ("TopK", 0): _no_nan,
    ("TopK", 1): _small(1, 1),
    ("Trilu", 1): _small(-2, 2),
    ("Unique", 0): _no_nan,
    ("Unsqueeze", 1): _axes,
    ("Upsample", 1): _enlarging,
}
