"""The IR version that a model should carry, and what each one may hold.

Sources: the notes on versions in ONNX's onnx.proto, and `onnx.helper.VERSION_TABLE`.
"""

from __future__ import annotations

import functools

from onnx import helper

FUNCTIONS = 8
"""The first IR version that knows model-local functions."""
SPARSE = 6
"""The first IR version that came with sparse initializers in a released operator set (opset 11)."""
PRIVATE_INITIALIZERS = 4
"""Below this every initializer must be a graph input too."""


@functools.cache
def of_opset(opset: int) -> int:
    """The IR version of the ONNX release that brought an opset of ai.onnx; opsets 2 to 4 go with 3."""
    return max([3, *(row[1] for row in helper.VERSION_TABLE if row[2] <= opset)])


def chosen(current: int, opset: int | None, wanted: int | str | None) -> int:
    """The IR version of the result: lowered with the opset, never raised without need.

    `wanted` is a number, "keep", or None. The floor is 4 unless the model has 3 or it is asked for.
    """
    if isinstance(wanted, int):
        return wanted
    if wanted == "keep" or opset is None:
        return current
    return min(current, max(of_opset(opset), PRIVATE_INITIALIZERS))
