"""Steps of the operators in ONNX's defs/sequence and defs/optional."""

from __future__ import annotations

import numpy as np

from relu_tools.adapters import KEEP, adapter, same

same("SplitToSequence", 11, 24)
same("Optional", 15, 28)
same("OptionalGetElement OptionalHasElement", 15, 18, 28)


@adapter("OptionalGetElement", 18, 15)
def get_of_any(op, input):
    """18 takes a tensor or a sequence too, and gives it back."""
    return KEEP if op.text(input).startswith("optional(") else op.Identity(input)


@adapter("OptionalHasElement", 18, 15)
def has_of_any(op, input):
    """18 takes a tensor or a sequence too, which is there, or no input at all, which is not."""
    if input and op.text(input).startswith("optional("):
        return KEEP
    return op.Identity(np.bool_(bool(input)))
