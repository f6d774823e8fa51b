"""Steps of the operators in ONNX's defs/controlflow: If, Loop, Scan. Their graphs are the engine's work."""

from __future__ import annotations

import itertools

import numpy as np
from onnx import helper, numpy_helper

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

same("If", 1, 11, 13, 16, 19, 21, 23, 24, 25)
same("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25)
same("Scan", 9, 11, 16, 19, 21, 23, 24, 25)

END = np.iinfo(np.int64).max
ZEROS = itertools.repeat(0)


@adapter("If", 11, 1)
def one_shape(op, cond, *, then_branch, else_branch):
    """11 lets the branches give different shapes, before it they give the same.

    Shapes that are known to differ are refused.
    """
    for then, other in zip(then_branch.output, else_branch.output, strict=True):
        shapes = [_dims(then), _dims(other)]
        if None not in shapes and not _agree(*shapes):
            raise RefusedError(f"before 11 both branches give one shape, here {shapes[0]} and {shapes[1]}")
    return KEEP


def _dims(info) -> list[int | None] | None:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]


def _agree(a: list[int | None], b: list[int | None]) -> bool:
    return len(a) == len(b) and all(x == y or None in (x, y) for x, y in zip(a, b, strict=True))


# --- Scan ----------------------------------------------------------------------------------
@adapter("Scan", 8, 9)
def scan_batch(op, sequence_lens, *values, body, num_scan_inputs, directions):
    """8 scans the sequences of a batch, each along axis 1 and as far as `sequence_lens` says; 9 scans one sequence.

    A Scan over the batch holds the Scan over a sequence. What 8 leaves undefined after a shorter one is 0.
    """
    states = len(values) - num_scan_inputs
    inner = {"body": body, "num_scan_inputs": num_scan_inputs, "scan_input_directions": directions}

    def sequence(*items):
        return op.Scan(*items, outputs=["all"] * len(op.outputs), **inner)

    def shorter(length, *items):
        results = sequence(*items[:states], *(_first(op, item, length) for item in items[states:]))
        return *results[:states], *(_padded(op, y, items[-1]) for y in results[states:])

    fed = [sequence_lens, *values] if sequence_lens else values
    graph = op.branch(shorter if sequence_lens else sequence, [op.item(value) for value in fed])
    return op.Scan(*fed, body=graph, num_scan_inputs=len(fed), outputs=["all"] * len(op.outputs))


def _first(op, x, length):
    """The first elements of x."""
    ones = op.ConstantOfShape(op.Reshape(length, np.array([1])), value=numpy_helper.from_array(np.ones(1, bool)))
    return op.Gather(x, op.Reshape(op.NonZero(ones), np.array([-1])))


def _padded(op, y, like):
    """Zeros after y, which make it as long as another value is."""
    missing = op.Sub(op.Slice(op.Shape(like), starts=[0], ends=[1]), op.Slice(op.Shape(y), starts=[0], ends=[1]))
    shape = op.Concat(missing, op.Slice(op.Shape(y), starts=[1], ends=[END]), axis=0)
    zeros = op.ConstantOfShape(shape, value=numpy_helper.from_array(op.like(0, y).reshape(1)))
    return op.Concat(y, zeros, axis=0)


@adapter("Scan", 9, 8)
def scan_one(
    op,
    *values,
    body,
    num_scan_inputs,
    scan_input_axes,
    scan_input_directions,
    scan_output_axes,
    scan_output_directions,
):
    """9 scans along any axis and can build its outputs from the end; 8 scans a batch along axis 1.

    The values become a batch of one. Transposes bring the axis to where 8 has it, and a Scan backwards turns an
    output round.
    """
    states = len(values) - num_scan_inputs
    axes = itertools.chain([0] * states, scan_input_axes or ZEROS)
    batch = [op.Unsqueeze(_axis_first(op, x, axis), axes=[0]) for x, axis in zip(values, axes, strict=False)]
    results = op.Scan(
        None,
        *batch,
        body=body,
        num_scan_inputs=num_scan_inputs,
        directions=scan_input_directions,
        outputs=["all"] * len(op.outputs),
    )
    outputs = [op.Squeeze(y, axes=[0]) for y in results[:states]]
    turns = scan_output_axes or ZEROS, scan_output_directions or ZEROS
    for y, axis, back in zip(results[states:], *turns, strict=False):
        y = _turned(op, y) if back else y
        outputs.append(_axis_back(op, op.Squeeze(y, axes=[0]), axis))
    return tuple(outputs)


def _axis_first(op, x, axis):
    others = [k for k in range(op.rank(x)) if k != axis] if axis else []
    return op.Transpose(x, perm=[axis, *others]) if axis else x


def _axis_back(op, x, axis):
    if not axis:
        return x
    return op.Transpose(x, perm=[*range(1, axis + 1), 0, *range(axis + 1, op.rank(x))])


def _turned(op, y):
    """The elements along axis 1 in the opposite order."""
    shape = op.known_shape(y)
    item = helper.make_tensor_type_proto(op.dtype(y), shape and shape[2:])
    return op.Scan(None, y, body=op.branch(op.Identity, [item]), num_scan_inputs=1, directions=[1])


@adapter("Scan", 11, 9)
def axes_from_front(op, *values, body, num_scan_inputs, scan_input_axes, scan_output_axes, **same):
    """11 lets axes count from the back.

    They are counted from the front.
    """
    if all(axis >= 0 for axis in (*(scan_input_axes or ()), *(scan_output_axes or ()))):
        return KEEP
    scanned = values[len(values) - num_scan_inputs :]
    given = op.outputs[len(values) - num_scan_inputs :]
    return op.Scan(
        *values,
        body=body,
        num_scan_inputs=num_scan_inputs,
        scan_input_axes=_from_front(op, scanned, scan_input_axes),
        scan_output_axes=_from_front(op, given, scan_output_axes),
        outputs=["all"] * len(op.outputs),
        **same,
    )


def _from_front(op, values, axes):
    # An output that nothing reads may lie along any axis.
    return axes and [a if a >= 0 else a + op.rank(x) if x else 0 for x, a in zip(values, axes, strict=True)]
