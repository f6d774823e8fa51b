"""Which integers are known not to be below 0, so that no index among them counts from the back."""

from __future__ import annotations

from onnx import TensorProto as T
from onnx import numpy_helper

from relu_tools.facts import Scope

UNSIGNED = (T.BOOL, T.UINT8, T.UINT16, T.UINT32, T.UINT64)

# What counts, by the index of the output that does.
_COUNTS = {**dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), (0,)), "TopK": (1,), "Unique": (1, 2, 3)}

# What gives back values of its first so many inputs; None for all of them.
_CARRIES = {
    **dict.fromkeys(("Cast", "Compress", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"), 1),
    **dict.fromkeys(("Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"), 1),
    **dict.fromkeys(("Concat", "Max", "Min"), None),
}


def nonnegative(scope: Scope, name: str) -> bool:
    """Whether nothing in a value can be below 0, by what it is made from."""
    if scope.dtype(name) in UNSIGNED:
        return True
    waiting = [name]
    while waiting:
        current = waiting.pop()
        constant = scope.constant(current)
        if constant is not None:
            if not (numpy_helper.to_array(constant) >= 0).all():
                return False
            continue
        if scope.dtype(current) in UNSIGNED[:3]:  # a cast can make those of 32 and 64 bits negative
            continue
        owner = scope.owner(current)
        if _is_said(scope, current):
            continue
        entry = owner.producers.get(current) if owner is not None else None
        if entry is None or entry[0].domain not in ("", "ai.onnx"):
            return False
        node = entry[0]
        if list(node.output).index(current) in _COUNTS.get(node.op_type, ()):
            continue
        if node.op_type not in _CARRIES:
            return False
        waiting.extend(node.input[: _CARRIES[node.op_type]])
    return True


def _is_said(scope: Scope | None, name: str) -> bool:
    """Whether it was said of a value; of one in a branch, that was before the branch had a scope of its own."""
    while scope is not None:
        if name in scope.counts:
            return True
        scope = scope.parent
    return False
