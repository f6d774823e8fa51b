"""The element type that a body computes in."""

from __future__ import annotations

from onnx import TensorProto as T


def widened(*values):
    """Values in float32 where their type is narrower, as onnxruntime's kernels compute; None stays None."""
    wide = [value if value is None or not is_narrow(value.dtype) else value.to(T.FLOAT) for value in values]
    return wide if len(wide) > 1 else wide[0]


def is_narrow(dtype) -> bool:
    """Whether a float type has fewer bits than float32."""
    return dtype in (T.FLOAT16, T.BFLOAT16)
