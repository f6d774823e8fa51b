"""What goes with an opset of ai.onnx: the IR version, what that may hold, and the version of ai.onnx.ml.

Sources: the notes on versions in ONNX's onnx.proto, and `onnx.helper.VERSION_TABLE`.
"""

from __future__ import annotations

import functools

import onnx
from onnx import helper

OLDEST = 3
"""The first IR version with opset imports."""
FUNCTIONS = 8
"""The first IR version that knows model-local functions."""
OVERLOADS = 10
"""The first IR version that tells functions of one name apart."""
SPARSE = 6
"""The first IR version that came with sparse initializers in a released operator set (opset 11)."""
PRIVATE_INITIALIZERS = 4
"""Below this every initializer must be a graph input too."""

ML = "ai.onnx.ml"
_RUN_TODAY = 7


@functools.cache
def of_opset(opset: int) -> int:
    """The IR version of the ONNX release that brought an opset of ai.onnx; opsets 2 to 4 go with 3."""
    return max([3, *(row[1] for row in helper.VERSION_TABLE if row[2] <= opset)])


@functools.cache
def ml_of_opset(opset: int) -> int:
    """The version of ai.onnx.ml in the ONNX release that brought an opset of ai.onnx."""
    return max([1, *(row[3] for row in helper.VERSION_TABLE if row[2] <= opset)])


@functools.cache
def opset_of_ml(version: int) -> int:
    """The first opset of ai.onnx that came with a version of ai.onnx.ml, of those that runtimes still run."""
    rows = helper.VERSION_TABLE
    return max(_RUN_TODAY, min((row[2] for row in rows if row[3] >= version), default=rows[-1][2]))


def chosen(current: int, opset: int | None, wanted: int | str | None) -> int:
    """The IR version of the result: lowered with the opset, never raised without need.

    `wanted` is a number, "keep", or None. The floor is 4 unless the model has 3 or it is asked for.
    Raises ValueError where there is no such IR version.
    """
    if isinstance(wanted, int):
        if not OLDEST <= wanted <= onnx.IR_VERSION:
            raise ValueError(
                f"there is no IR version {wanted}: onnx {onnx.__version__} knows {OLDEST} to {onnx.IR_VERSION}"
            )
        return wanted
    if wanted not in (None, "keep"):
        raise ValueError(f"an IR version is a whole number or 'keep', not {wanted!r}")
    if wanted == "keep" or opset is None:
        return current
    return min(current, max(of_opset(opset), PRIVATE_INITIALIZERS))
