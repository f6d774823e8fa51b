"""Steps of the operators in ONNX's defs/controlflow: If, Loop, Scan. Their graphs are the engine's work."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper

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

    The one of fewer dimensions gets more of size 1, and a mask tells which ones are to be left out after the If. Sizes
    that are known to differ are refused.
    """
    shapes = list(zip(op.given(then_branch), op.given(else_branch), strict=True))
    uneven = [k for k, (a, b) in enumerate(shapes) if a is not None and b is not None and not _agree(a, b)]
    if not uneven:
        return KEEP
    added = {k: _added(*shapes[k]) for k in uneven}
    if not op.version("Compress"):
        raise RefusedError("before 11 both branches give one shape, and before 9 no Compress brings back the other")

    def branch(graph, side):
        def even(*values):
            masks = [np.array([j not in added[k][side] for j in range(added[k][2])]) for k in uneven]
            axes = [added[k][side] if k in added else () for k in range(len(values))]
            longer = [op.Unsqueeze(v, axes=a) if a else v for v, a in zip(values, axes, strict=True)]
            return [*longer, *map(op.Identity, masks)]

        return op.giving(graph, even)

    branches = {"then_branch": branch(then_branch, 0), "else_branch": branch(else_branch, 1)}
    results = list(op.If(cond, outputs=["all"] * (len(shapes) + len(uneven)), **branches))
    for k, mask in zip(uneven, results[len(shapes) :], strict=True):
        results[k] = op.Reshape(results[k], op.Compress(op.Shape(results[k]), mask, axis=0))
    return tuple(results[: len(shapes)])


def _agree(a: Sequence[int | str | None], b: Sequence[int | str | None]) -> bool:
    """Whether two shapes are not known to differ."""
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and not any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in pairs)


def _added(a: list[int | str | None], b: list[int | str | None]) -> tuple[Sequence[int], Sequence[int], int]:
    """The dimensions that one of two shapes needs to agree with the other, for each of the two, and the rank then."""
    few, many = sorted((a, b), key=len)
    for axes in itertools.combinations(range(len(many)), len(many) - len(few)):
        rest = iter(few)
        if axes and _agree([1 if k in axes else next(rest) for k in range(len(many))], many):
            return (axes, (), len(many)) if few is a else ((), axes, len(many))
    raise RefusedError(f"before 11 both branches give one shape, here {a} and {b}")


@adapter("Loop", 11, 1)
def one_state(op, M, cond, *v_initial, body):
    """11 takes a Loop that hands nothing on from turn to turn, 1 does not.

    A value is handed on that nothing reads.
    """
    if v_initial or not op.outputs:
        return KEEP

    def turn(number, go_on, unused):
        go_on, *items = op.splice(body, number, go_on)
        return go_on, unused, *items

    formals = [helper.make_tensor_type_proto(dtype, []) for dtype in (TensorProto.INT64, TensorProto.BOOL)]
    graph = op.branch(turn, [*formals, formals[0]])
    return op.Loop(M or None, cond or None, np.int64(0), body=graph, outputs=1 + len(op.outputs))[1:]


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
