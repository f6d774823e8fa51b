"""Values of one element type: plain, special, of every size, tied, and for small types all there are.

A maker gets a random generator, the element type, the shape, numbers at which the model may change its mind, a
rotation for lists of values and the number of the input; it returns an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..compare import is_float

Shape = tuple[int, ...]
Maker = Callable[[np.random.Generator, np.dtype, Shape, Sequence[float], int, int], np.ndarray]


def plain(
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


def wide(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Of every order of magnitude."""
    import ml_dtypes

    if dtype.kind == "c":
        return plain(random, dtype, shape, values, rotation, number)
    if not is_float(dtype):
        low, high = integer_range(dtype)
        magnitude = np.exp2(random.uniform(0, np.log2(float(high)), shape))
        # Odd numbers show what a mantissa too short for them would drop.
        value = np.asarray(magnitude * 0.99).astype(np.int64 if low else np.uint64) | np.uint8(1)
        return np.asarray(value * random.choice([1, -1], shape) if low else value).astype(dtype)
    info = ml_dtypes.finfo(dtype)
    low, high = np.log2(float(info.smallest_normal)) * 0.9, np.log2(float(info.max)) * 0.9
    return np.asarray(random.choice([1, -1], shape) * np.exp2(random.uniform(low, high, shape))).astype(dtype)


def moderate(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Of several orders of magnitude, but none whose sums and products leave the type."""
    if not is_float(dtype):
        return wide(random, dtype, shape, values, rotation, number)
    return np.asarray(random.choice([1, -1], shape) * np.exp2(random.uniform(-6, 2, shape))).astype(dtype)


def large(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Of the size at which an exponential overflows and nothing else does."""
    import ml_dtypes

    if not is_float(dtype):
        return plain(random, dtype, shape, values, rotation, number)
    most = 200 if float(ml_dtypes.finfo(dtype).max) > 1e5 else 20
    return np.asarray(random.uniform(-most, most, shape)).astype(dtype)


def small(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """So small that what is added against a division by 0 counts."""
    if not is_float(dtype):
        return plain(random, dtype, shape, values, rotation, number)
    return np.asarray(random.standard_normal(shape) * 2e-3).astype(dtype)


def tied(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Of few values, so that many are equal, within an input and between inputs."""
    if dtype.kind == "c":
        return plain(random, dtype, shape, values, rotation, number)
    low = -1 if is_float(dtype) else max(integer_range(dtype)[0], -1)
    return random.integers(low, 2, shape, endpoint=True).astype(dtype)


def neighbours(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Values that a narrower type cannot tell from those next to them; in all inputs around the same ones."""
    import ml_dtypes

    if dtype.kind == "c":
        return plain(random, dtype, shape, values, rotation, number)
    steps = random.integers(-1, 1, shape, endpoint=True)
    if not is_float(dtype):
        low, high = integer_range(dtype)
        around = [v for v in (high // 2 + 1, high - 1, low // 2 - 1, low + 1, 1 << 24, 1 << 53) if low < v < high]
        place = np.resize(np.array(around, np.int64 if high < 1 << 63 else np.uint64), shape)
        return np.asarray(place + steps.astype(place.dtype)).astype(dtype)
    around = np.resize(np.array([1.0, 3.0, -1.5, 0.1, 2.5, -0.7]), shape)
    return np.asarray(around * (1 + steps * float(ml_dtypes.finfo(dtype).eps))).astype(dtype)


def with_one(
    lone: float,
    random: np.random.Generator,
    dtype: np.dtype,
    shape: Shape,
    values: Sequence[float],
    rotation: int,
    number: int,
) -> np.ndarray:
    """Plain values, and `lone` at one place of the first input."""
    value = plain(random, dtype, shape, values, rotation, number)
    if is_float(dtype) and value.size and number == 0:
        value.flat[random.integers(value.size)] = lone
    return value


def special(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Each special value in turn; a second input walks its list in another order, so that pairs differ."""
    if dtype.kind == "c":
        return plain(random, dtype, shape, values, rotation, number)
    pool = special_values(dtype, values)
    if number:
        pool = random.permutation(pool)
    return np.resize(np.roll(pool, -rotation), shape) if np.prod(shape, dtype=np.int64) else np.empty(shape, dtype)


def moderate_special(
    random: np.random.Generator, dtype: np.dtype, shape: Shape, values: Sequence[float], rotation: int, number: int
) -> np.ndarray:
    """Special values without the large ones, the infinite ones and NaN."""
    value = special(random, dtype, shape, values, rotation, number)
    if not is_float(dtype):
        return value
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(value) <= dtype.type(3), value, dtype.type(1)).astype(dtype)


def below_limits(value: np.ndarray) -> np.ndarray:
    """Floats as they are up to an eighth of the greatest one, that eighth instead of what lies above it."""
    import ml_dtypes

    if not is_float(value.dtype):
        return value
    most = value.dtype.type(float(ml_dtypes.finfo(value.dtype).max) / 8)
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(value) & (np.abs(value) > most)
        return np.where(beyond, np.copysign(most, value), value).astype(value.dtype)


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
    tiny, normal, eps, most = (float(x) for x in (info.smallest_subnormal, info.smallest_normal, info.eps, info.max))
    positive = [tiny, normal, eps, 1.0, 1 + eps, 1 - eps / 2, 0.5, 1.5, 2.0, 2.5, 3.0, 6.0, 10.0, 88.0, 100.0, most]
    floats = [np.nan, 0.0, -0.0, np.inf, -np.inf, *positive, *(-v for v in positive)]
    result = np.array(floats).astype(dtype)
    near = np.array([v for v in {*values, *(-v for v in values)} if abs(v) <= most], dtype=np.float64).astype(dtype)
    if near.size:
        up, down = (np.nextafter(near, np.array(v, dtype)) for v in (np.inf, -np.inf))
        result = np.concatenate([result, near, up, down])
    bits = result.view(f"u{dtype.itemsize}")
    return result[np.sort(np.unique(bits, return_index=True)[1])]
