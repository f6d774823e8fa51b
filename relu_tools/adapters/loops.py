"""Scan below the opset that has it, as Loop."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from relu_tools.adapters import adapter
from relu_tools.adapters.indexing import scalar


@adapter("Scan", 8, None, opset=13)
def scan_by_loop(op, sequence_lens, *values, body, num_scan_inputs, directions):
    """8 is its first version.

    One Loop goes over the batch, one in it over the sequence; what 8 leaves undefined after a shorter one is 0.
    """
    states = len(values) - num_scan_inputs
    whole = op.Gather(op.Shape(values[-1]), np.array(1), axis=0)

    def item(number, go_on, unused):
        length = scalar(op, op.Gather(sequence_lens, number, axis=0)) if sequence_lens else whole
        given = [op.Gather(value, number, axis=0) for value in values]
        results = _one(op, given[:states], given[states:], length, body, directions)
        if sequence_lens:
            ranks = [len(info.type.tensor_type.shape.dim) for info in body.output[states:]]
            results[states:] = [_filled(op, y, k, whole, length) for y, k in zip(results[states:], ranks, strict=True)]
        return go_on, unused, *results

    formals = [helper.make_tensor_type_proto(dtype, []) for dtype in (T.INT64, T.BOOL, T.INT64)]
    count = op.Gather(op.Shape(values[-1]), np.array(0), axis=0)
    return op.Loop(count, None, whole, body=op.branch(item, formals), outputs=1 + len(op.outputs))[1:]


def _one(op, states, scanned, length, body, directions) -> list[str]:
    """The last states and the stacked outputs of a scan over one sequence."""

    def turn(number, go_on, unused, *states):
        back = op.Sub(op.Sub(length, np.int64(1)), number) if directions and any(directions) else number
        places = [back if back_to_front else number for back_to_front in directions or [0] * len(scanned)]
        items = [op.Gather(value, place, axis=0) for value, place in zip(scanned, places, strict=True)]
        return go_on, unused, *op.splice(body, *states, *items)

    formals = [helper.make_tensor_type_proto(dtype, []) for dtype in (T.INT64, T.BOOL, T.INT64)]
    formals += [helper.make_tensor_type_proto(op.dtype(state), op.known_shape(state)) for state in states]
    graph = op.branch(turn, formals)
    return list(op.Loop(length, None, length, *states, body=graph, outputs=len(graph.output) - 1)[1:])


def _filled(op, y, rank, whole, length):
    """What a shorter sequence gave, of values of this rank, and zeros after it."""
    more = op.Unsqueeze(op.Sub(whole, length), np.array([0]))
    shape = op.Concat(more, op.Gather(op.Shape(y), np.arange(1, rank + 1), axis=0), axis=0)
    zeros = op.ConstantOfShape(shape, value=numpy_helper.from_array(op.like(0, y).reshape(1)))
    return op.Concat(y, zeros, axis=0)
