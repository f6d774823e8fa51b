"""Bodies of com.microsoft's gates and scaled activations of language models; where it rounds on the way, so do they."""

from __future__ import annotations

from onnx import TensorProto as T
from onnxscript import opset23 as op

from relu_tools.bodies.precision import widened
from relu_tools.bodies.tracing import body
from relu_tools.report import RefusedError


@body
def ScaledSiLU(X, scale=None, alpha: float = 1.0):
    """z times the sigmoid of z, where z is X times the scale, by default alpha; z and the sigmoid are rounded."""
    x = widened(X)
    factor = x.like(alpha) if scale is None else scale.scalar().to(x.dtype)
    z = (x * factor).to(X.dtype)
    return (widened(z) * widened(op.Sigmoid(widened(z)).to(X.dtype))).to(X.dtype)


@body
def SwiGLU(
    gate,
    up=None,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
):
    """g * sigmoid(activation_alpha * g) * (l + activation_beta), g and l clamped where `limit` is above 0.

    g is the gate and l is `up`, or both are the halves of the gate.
    """
    dtype = gate.dtype
    g, linear = op.Split(widened(gate), axis=-1, num_outputs=2) if up is None else widened(gate, up)
    if limit > 0:
        g = op.Clip(g, None, g.like(limit))
        linear = op.Clip(linear, g.like(-limit), g.like(limit))
    active = g * op.Sigmoid(g * activation_alpha)
    if round_activation:
        active = active.to(dtype).to(g.dtype)
    return (active * (linear if activation_beta == 0 else linear + activation_beta)).to(dtype)


@body
def GatedAdd(X, Y, gate, gate_weight=None):
    """X + Y * gate, the product rounded."""
    if gate_weight is not None:
        raise RefusedError("its body knows no projected gate")
    return X + Y * gate


@body
def GatedRMSNorm(X, scale, gate, activation: str = "silu", epsilon: float = 1e-5):
    """Each group of elements divided by its root mean square, times the scale, times the gate.

    A group has as many elements as the scale. The gate goes through a sigmoid, or is multiplied with its own.
    """
    if activation not in ("silu", "swish", "sigmoid"):
        raise RefusedError(f"its body knows no activation '{activation}'")
    x, weight, z = widened(X, scale, gate)
    width = size(scale, 0)
    groups = op.Reshape(x, [*[0] * (X.rank - 1), size(X, -1) // width, width])
    normalized = op.RMSNormalization(groups, weight, axis=-1, epsilon=epsilon)
    opened = op.Sigmoid(z) if activation == "sigmoid" else z * op.Sigmoid(z)
    return (op.Reshape(normalized, op.Shape(x)) * opened).to(X.dtype)


@body
def BranchwiseRMSNorm(X, scale=None, epsilon: float = 1e-5, num_branches: int = 0):
    """Each branch divided by its root mean square, times the scale; branches are rows, or parts of equal length."""
    x = widened(X)
    branches = x
    if num_branches:
        branches = op.Reshape(x, [*[0] * (X.rank - 1), num_branches, size(X, -1) // num_branches])
    mean = op.ReduceMean(branches * branches, [-1])
    normalized = branches * op.Reciprocal(op.Sqrt(mean + epsilon))
    if scale is None:
        return op.Reshape(normalized, op.Shape(x)).to(X.dtype)
    weight = scale.to(x.dtype)
    if scale.rank == 1 and size(scale, 0) != size(branches, -1):
        weight = op.Reshape(weight, [num_branches or size(X, -2), -1])
    return op.Reshape(normalized * weight, op.Shape(x)).to(X.dtype)


def size(value, axis: int) -> int:
    """The length of an axis."""
    found = value.shape[axis]
    if not isinstance(found, int):
        raise RefusedError(f"the length of axis {axis} of '{value.name}' is not known")
    return found


@body
def LinearAttentionGate(a, dt_bias, decay_scale, b=None):
    """The decay is decay_scale * softplus(a + dt_bias), and beta the sigmoid of b."""
    decay = op.Softplus(a.to(T.FLOAT) + dt_bias) * decay_scale
    beta = None if b is None else op.Sigmoid(widened(b)).to(b.dtype)
    return decay.to(a.dtype), beta
