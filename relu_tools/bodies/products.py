"""Bodies of com.microsoft's products of matrices, with transposed operands and activations."""

from __future__ import annotations

from onnxscript import opset20 as op

from relu_tools.bodies.fused import activated
from relu_tools.bodies.tracing import body


@body
def FusedMatMul(A, B, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0):
    """alpha times the product of A and B, as numpy's matmul, either transposed first.

    `trans` exchanges the last two axes; `transBatch` before that takes the first axis behind all but the last.
    """
    return _product(A, B, alpha, transA, transB, transBatchA, transBatchB)


@body
def TransposeMatMul(A, B, alpha: float = 1.0, transA: int = 0, transB: int = 0):
    """FusedMatMul under its old name."""
    return _product(A, B, alpha, transA, transB, 0, 0)


@body
def FusedMatMulActivation(
    A,
    B,
    *,
    activation: str,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    activation_axis: int | None = None,
):
    """FusedMatMul, then an activation of ai.onnx with these attributes."""
    product = _product(A, B, alpha, transA, transB, transBatchA, transBatchB)
    return activated(
        product,
        activation,
        alpha=activation_alpha,
        beta=activation_beta,
        gamma=activation_gamma,
        axis=activation_axis,
    )


@body
def FusedGemm(
    A,
    B,
    C=None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
):
    """Gemm, then an activation of ai.onnx with these attributes."""
    product = op.Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activated(product, activation, alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)


@body
def GemmFastGelu(X, W, bias=None):
    """The Gelu by way of tanh of the product of X and W, plus the vector `bias`."""
    product = op.MatMul(X, W)
    return op.Gelu(product if bias is None else product + bias, approximate="tanh")


def _product(A, B, alpha, transA, transB, transBatchA, transBatchB):
    product = op.MatMul(_transposed(A, transA, transBatchA), _transposed(B, transB, transBatchB))
    return product if alpha == 1 else product * alpha


def _transposed(x, trans: int, batch: int):
    # onnxruntime leaves a vector as it is.
    if not (trans or batch) or x.rank < 2:
        return x
    *rest, column = range(x.rank)
    order = [*rest[1:], rest[0], column] if batch else [*rest, column]
    if trans:
        order[-2:] = order[:-3:-1]
    return x if order == sorted(order) else op.Transpose(x, perm=order)
