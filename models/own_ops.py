"""Bodies of the operators of the domain `own`, which squareplus.onnxtxt holds one of."""

from onnxscript import opset18 as op
from onnxscript import script
from onnxscript.values import Opset


@script(Opset("own", 1))
def Squareplus(X, b: float = 4.0):
    """A smooth Relu: half of X plus the root of its square plus b."""
    return (X + op.Sqrt(X * X + b)) / 2.0
