"""NonMaxSuppression below the opset that has it, written out as a Loop."""

from __future__ import annotations

import functools

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from relu_tools.adapters import adapter
from relu_tools.adapters.indexing import arange, scalar, size
from relu_tools.report import RefusedError

SCALAR, COLUMN, ROWS = np.zeros(0, np.int64), np.array([-1, 1]), np.array([-1])
ZERO, TWO = np.float32(0), np.float32(2)


@adapter("NonMaxSuppression", 10, None, opset=13)
def non_max_suppression(
    op, boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, *, center_point_box
):
    """10 is its first version.

    A Loop goes over the boxes of all batches and classes by falling score and takes one unless it overlaps too much
    with one that is taken.
    """
    if not max_output_boxes_per_class:
        return op.Constant(value=numpy_helper.from_array(np.zeros((0, 3), np.int64)))
    most = scalar(op, max_output_boxes_per_class)
    overlap = op.Reshape(iou_threshold, SCALAR) if iou_threshold else ZERO
    classes, count = size(op, scores, 1), size(op, scores, 2)
    if isinstance(count, str):
        raise RefusedError(f"before 10 boxes are sorted only if their number is known: the last size of '{scores}'")
    values, order = op.TopK(op.Reshape(scores, np.array([-1, count])), np.array([count]), axis=1, outputs=2)
    able = op.Greater(values, op.Reshape(score_threshold, SCALAR)) if score_threshold else None
    # A row for each class of each batch; the boxes are those of the batch.
    lanes = arange(op, op.Slice(op.Shape(order), np.array([0]), np.array([1])))
    batch = op.Div(lanes, _number(op, classes))
    rows = op.Add(op.Reshape(op.Mul(batch, np.int64(count)), COLUMN), order)
    *edges, area = _edges(op, op.Gather(op.Reshape(boxes, np.array([-1, 4])), rows, axis=0), center_point_box)

    def turn(number, go_on, taken, sums):
        at = op.Reshape(number, np.array([1]))
        low_y, low_x, high_y, high_x, own = (op.Gather(value, at, axis=1) for value in (*edges, area))
        height = op.Sub(op.Min(edges[2], high_y), op.Max(edges[0], low_y))
        width = op.Sub(op.Min(edges[3], high_x), op.Max(edges[1], low_x))
        both = op.Mul(width, height)
        union = op.Sub(op.Add(area, own), both)
        meet = [op.Greater(x, ZERO) for x in (height, width, area, own, union)]
        meet.append(op.Greater(op.Div(both, union), overlap))
        met = functools.reduce(op.And, meet, taken)
        hits = op.ReduceSum(op.Cast(met, to=T.INT64), np.array([1]), keepdims=1)
        take = op.And(op.Less(hits, np.int64(1)), op.Less(sums, most))
        take = op.And(take, op.Gather(able, at, axis=1)) if able else take
        here = op.Equal(np.arange(count), number)
        return go_on, op.Or(taken, op.And(take, here)), op.Add(sums, op.Cast(take, to=T.INT64))

    none = op.Cast(op.Mul(order, np.int64(0)), to=T.BOOL)
    sums = op.ReduceSum(op.Cast(none, to=T.INT64), np.array([1]), keepdims=1)
    formals = [helper.make_tensor_type_proto(dtype, []) for dtype in (T.INT64, T.BOOL)]
    formals += [helper.make_tensor_type_proto(dtype, [None, None]) for dtype in (T.BOOL, T.INT64)]
    taken, _ = op.Loop(np.int64(count), None, none, sums, body=op.branch(turn, formals), outputs=2)
    op.tell(taken, T.BOOL, [None, None])
    places = op.NonZero(taken)
    lane, rank = (op.Gather(places, np.array(k), axis=0) for k in (0, 1))
    box = op.Gather(op.Reshape(order, ROWS), op.Add(op.Mul(lane, np.int64(count)), rank), axis=0)
    batch = op.Div(lane, _number(op, classes))
    kind = op.Sub(lane, op.Mul(batch, _number(op, classes)))
    return op.Concat(*(op.Reshape(x, COLUMN) for x in (batch, kind, box)), axis=1)


def _edges(op, boxes, centred):
    """The lower and the higher ends of boxes along y and x, and their areas."""
    first, second, third, fourth = (op.Gather(boxes, np.array(k), axis=2) for k in range(4))
    if centred:
        width, height = op.Div(third, TWO), op.Div(fourth, TWO)
        low_y, high_y = op.Sub(second, height), op.Add(second, height)
        low_x, high_x = op.Sub(first, width), op.Add(first, width)
    else:
        low_y, high_y = op.Min(first, third), op.Max(first, third)
        low_x, high_x = op.Min(second, fourth), op.Max(second, fourth)
    return low_y, low_x, high_y, high_x, op.Mul(op.Sub(high_y, low_y), op.Sub(high_x, low_x))


def _number(op, count):
    return op.Reshape(count, SCALAR) if isinstance(count, str) else np.int64(count)
