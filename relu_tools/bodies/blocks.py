"""Operators of com.microsoft.nchwc: none has a body. Each is refused with the reason."""

from __future__ import annotations

from onnxscript.values import Opset, TracedOnnxFunction

from relu_tools.bodies import BLOCKS, TABLE
from relu_tools.report import RefusedError

_OPSET = Opset(BLOCKS, 1)


def _refused(op: str) -> TracedOnnxFunction:
    def body(*inputs, **attributes):
        raise RefusedError(
            "its channels lie in blocks as large as suits the processor that the model was optimized on, "
            "which the model does not tell",
            "let onnxruntime optimize no further than its extended level",
        )

    body.__name__ = op
    return TracedOnnxFunction(_OPSET, body)


for _domain, _op in TABLE:
    if _domain == BLOCKS:
        globals()[_op] = _refused(_op)
