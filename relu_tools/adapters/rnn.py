"""Steps of the operators in ONNX's defs/rnn: RNN, LSTM, GRU."""

from __future__ import annotations

from relu_tools.adapters import KEEP, adapter, same
from relu_tools.report import RefusedError

same("RNN LSTM", 1, 7, 14, 22)
same("GRU", 1, 3, 7, 14, 22)


@adapter("RNN LSTM", 1, 7)
@adapter("GRU", 3, 7)
def sequence_named(op, X, W, R, B, sequence_lens, *states, output_sequence, **same):
    """Before 7 `output_sequence` says whether Y is given, in 7 its name does.

    A node that names Y wants it.
    """
    return op.again(X, W, R, B, sequence_lens, *states, outputs=op.outputs, **same)


@adapter("RNN LSTM", 7, 1)
@adapter("GRU", 7, 3)
def sequence_asked_for(op, X, W, R, B, sequence_lens, *states, **same):
    """7 gives Y where it has a name, before it `output_sequence` must ask for it."""
    asked = int(bool(op.outputs[0]))
    return op.again(X, W, R, B, sequence_lens, *states, outputs=op.outputs, output_sequence=asked, **same)


@adapter("RNN LSTM GRU", 14, 7)
def batch_first(op, X, W, R, B, sequence_lens, *states, layout, **same):
    """14 can have the batch as the first axis (`layout` 1).

    Transposes bring it behind the sequence or the directions, and back.
    """
    if not layout:
        return KEEP
    behind = [state and op.Transpose(state, perm=[1, 0, 2]) for state in states[:2]]
    X = op.Transpose(X, perm=[1, 0, 2])
    results = op.again(X, W, R, B, sequence_lens, *behind, *states[2:], outputs=op.outputs, **same)
    perms = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    return tuple(y and op.Transpose(y, perm=perm) for y, perm in zip(results, perms, strict=False))


@adapter("GRU", 1, 3)
def direction_spelt(op, X, W, R, B, sequence_lens, initial_h, *, direction, **same):
    """1 misspells its default direction, "foward", and has no `linear_before_reset`.

    3 calls it "forward", and the new attribute's default is what 1 does.
    """
    direction = "forward" if direction == "foward" else direction
    return op.GRU(X, W, R, B, sequence_lens, initial_h, outputs=op.outputs, direction=direction, **same)


@adapter("GRU", 3, 1)
def reset_first(op, X, W, R, B, sequence_lens, initial_h, *, linear_before_reset, **same):
    """3 adds `linear_before_reset`, and lets Y_h be left out.

    Y_h gets a name; the other order of the gates is refused.
    """
    if linear_before_reset:
        raise RefusedError("before 3 GRU resets before the linear transformation (linear_before_reset 0)")
    return op.GRU(X, W, R, B, sequence_lens, initial_h, outputs=[op.outputs[0], "Y_h"], **same)
