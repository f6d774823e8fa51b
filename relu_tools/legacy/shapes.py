"""Casts and changes of shape."""

from __future__ import annotations

import numpy as np
import onnx

from .activation import rows
from .registry import demand, meaning


@meaning("Cast", 1, 6)
def _cast_by_name(node, x, *, to):
    """The type is a name in capitals."""
    from onnx.reference.ops.op_cast import cast_to

    return cast_to(x, onnx.TensorProto.DataType.Value(to), True)


@meaning("Concat", 1, 4)
def _concat(node, *inputs, axis=None):
    return np.concatenate(inputs, 1 if axis is None else axis)


@meaning("Reshape", 1, 5)
def _reshape(node, x, *, shape=None):
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape or [])])


@meaning("Flatten", 1)
def _flatten(node, x, *, axis):
    return rows(x, axis)[0]


@meaning("Unsqueeze", 1, 11)
def _unsqueeze_1(node, x, *, axes):
    demand(min(axes) >= 0, f"axes {axes} may not be negative")
    return np.expand_dims(x, tuple(axes))


@meaning("Unsqueeze", 11, 13)
def _unsqueeze_11(node, x, *, axes):
    return np.expand_dims(x, tuple(axes))


@meaning("Unsqueeze", 13)
def _unsqueeze(node, x, axes):
    return np.expand_dims(x, tuple(axes.ravel().tolist()))


@meaning("Squeeze", 1, 11)
def _squeeze_1(node, x, *, axes=None):
    demand(not axes or min(axes) >= 0, f"axes {axes} may not be negative")
    return np.squeeze(x, tuple(axes) if axes is not None else None)


@meaning("Squeeze", 11, 13)
def _squeeze_11(node, x, *, axes=None):
    return np.squeeze(x, tuple(axes) if axes is not None else None)


@meaning("Squeeze", 13)
def _squeeze(node, x, axes=None):
    return np.squeeze(x, tuple(axes.ravel().tolist()) if axes is not None else None)


@meaning("Tile", 1, 6)
def _tile_1(node, x, tiles, axis):
    repeats = [1] * x.ndim
    repeats[int(axis.item())] = int(tiles.item())
    return np.tile(x, repeats)


@meaning("Tile", 6)
def _tile(node, x, repeats):
    demand(len(repeats) == x.ndim, f"{len(repeats)} repeats for rank {x.ndim}")
    return np.tile(x, repeats)


@meaning("Expand", 8)
def _expand(node, x, shape):
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist()))).copy()


@meaning("Shape", 1, 15)
def _shape_1(node, x):
    return np.array(x.shape, np.int64)


@meaning("Shape", 15)
def _shape(node, x, *, start, end=None):
    rank = x.ndim
    begin, stop = (min(max(v + (rank if v < 0 else 0), 0), rank) for v in (start, rank if end is None else end))
    return np.array(x.shape[begin:stop], np.int64)
