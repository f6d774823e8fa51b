"""Products of matrices and convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from ..compare import is_float
from .arithmetic import spread
from .registry import demand, meaning, widened
from .windows import seen_by_windows, window_plan


@meaning("Gemm", 1, 7)
def _gemm_1(node, a, b, c, *, alpha, beta, transA, transB, broadcast):
    product = (a.T if transA else a) @ (b.T if transB else b)
    return (alpha * product + beta * spread(product, c, None, broadcast)).astype(a.dtype)


@meaning("Gemm", 7)
def _gemm(node, a, b, c=None, *, alpha, beta, transA, transB):
    product = (widened(a).T if transA else widened(a)) @ (widened(b).T if transB else widened(b))
    if not is_float(a.dtype):
        demand(
            alpha == int(alpha) and beta == int(beta),
            "integers with a factor that is none",
        )
        alpha, beta = a.dtype.type(alpha), a.dtype.type(beta)
    result = alpha * product
    if c is not None and beta != 0:
        demand(
            np.broadcast_shapes(result.shape, c.shape) == result.shape,
            f"C {c.shape} for {result.shape}",
        )
        result = result + beta * widened(c)
    return result.astype(a.dtype)


@meaning("Conv", 1)
def _conv(
    node,
    x,
    w,
    b=None,
    *,
    auto_pad,
    group,
    dilations=None,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    kernel = w.shape[2:]
    demand(
        x.shape[1] == w.shape[1] * group and w.shape[0] % group == 0,
        f"X {x.shape}, W {w.shape}, {group} groups",
    )
    demand(
        not kernel_shape or tuple(kernel_shape) == kernel,
        f"kernel_shape {kernel_shape} for W {w.shape}",
    )
    plan = window_plan(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    seen = seen_by_windows(widened(x), kernel, plan, 0)
    spatial = len(kernel)
    parts = []
    for part, weights in zip(np.split(seen, group, 1), np.split(widened(w), group, 0), strict=True):
        axes = [1, *range(2 + spatial, 2 + 2 * spatial)]
        parts.append(np.moveaxis(np.tensordot(part, weights, (axes, [1, *range(2, 2 + spatial)])), -1, 1))
    y = np.concatenate(parts, 1)
    return (y if b is None else y + widened(b).reshape((-1,) + (1,) * spatial)).astype(x.dtype)


def _conv_transpose_from(even_only: bool) -> Callable:
    def run(
        node,
        x,
        w,
        b=None,
        *,
        auto_pad,
        group,
        dilations=None,
        kernel_shape=None,
        output_padding=None,
        output_shape=None,
        pads=None,
        strides=None,
    ):
        kernel, size, spatial = w.shape[2:], x.shape[2:], range(x.ndim - 2)
        strides, dilations = strides or [1] * len(size), dilations or [1] * len(size)
        extra = output_padding or [0] * len(size)
        full = [strides[i] * (size[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 for i in spatial]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
            output_shape = [size[i] * strides[i] for i in spatial]
        if output_shape:
            output_shape = list(output_shape)[-len(size) :]
            total = [full[i] - output_shape[i] for i in spatial]
            demand(min(total) >= 0, f"output_shape {output_shape} is larger than {full}")
            if even_only and any(t % 2 for t in total):
                raise NotImplementedError("the texts of ConvTranspose 1 contradict each other on an odd padding")
            begin = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
        else:
            begin = list(pads[: len(size)]) if pads and auto_pad != "VALID" else [0] * len(size)
            end = list(pads[len(size) :]) if pads and auto_pad != "VALID" else [0] * len(size)
            output_shape = [full[i] - begin[i] - end[i] for i in spatial]
        wide, weights = np.split(widened(x), group, 1), np.split(widened(w), group, 0)
        canvas = np.zeros((x.shape[0], w.shape[1] * group, *full), wide[0].dtype)
        for offset in itertools.product(*map(range, kernel)):
            place = tuple(
                slice(
                    offset[i] * dilations[i],
                    offset[i] * dilations[i] + strides[i] * (size[i] - 1) + 1,
                    strides[i],
                )
                for i in spatial
            )
            taps = [ws[(..., *offset)] for ws in weights]
            spots = [np.einsum("nc...,cm->nm...", part, tap) for part, tap in zip(wide, taps, strict=True)]
            canvas[(slice(None), slice(None), *place)] += np.concatenate(spots, 1)
        y = canvas[(..., *(slice(begin[i], begin[i] + output_shape[i]) for i in spatial))]
        return (y if b is None else y + widened(b).reshape((-1,) + (1,) * len(size))).astype(x.dtype)

    return run


meaning("ConvTranspose", 1, 11)(_conv_transpose_from(even_only=True))
meaning("ConvTranspose", 11)(_conv_transpose_from(even_only=False))
