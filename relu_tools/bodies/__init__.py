"""Function bodies of operators that no schema defines: ours, one module for a family of operators, and given ones.

Most are com.microsoft's, which onnxruntime's optimizer and exporters leave in files; their bodies follow the
documentation of onnxruntime's contrib operators. A body is an onnxscript function of the operator's name. It is
imported, and onnxscript with it, when a node is met that it stands for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relu_tools.bodies.body import StaticBody, TracedBody

DOMAIN = "com.microsoft"
BLOCKS = "com.microsoft.nchwc"

_FAMILIES = {
    "activations": "BiasGelu BiasSplitGelu FastGelu Gelu QuickGelu",
    "arrays": "CDist ExpandDims GatherND GridSample Pad Range ReduceSumInteger SampleOp "
    "TorchEmbedding Trilu UnfoldTensor Unique",
    "attention": "Attention DecoderMaskedMultiHeadAttention MultiHeadAttention QAttention",
    "biases": "BiasAdd BiasDropout BiasSoftmax",
    "convolution": "FusedConv NhwcConv NhwcFusedConv",
    "gated": "BranchwiseRMSNorm GatedAdd GatedRMSNorm LinearAttentionGate ScaledSiLU SwiGLU",
    "inverse": "Inverse",
    "normalization": "EmbedLayerNormalization GroupNorm SimplifiedLayerNormalization SkipGroupNorm "
    "SkipLayerNormalization SkipSimplifiedLayerNormalization",
    "grouped_attention": "GroupQueryAttention",
    "matmul_nbits": "GatherBlockQuantized MatMulBnb4 MatMulNBits",
    "products": "FusedGemm FusedMatMul FusedMatMulActivation GemmFastGelu TransposeMatMul",
    "quantized": "DequantizeLinear NhwcMaxPool QEmbedLayerNormalization QLinearAdd QLinearAveragePool QLinearConcat "
    "QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere "
    "QuantizeLinear",
    "quantized_lstm": "DynamicQuantizeLSTM",
    "quantized_matmul": "DynamicQuantizeMatMul MatMulInteger16 MatMulIntegerToFloat QGemm QLinearConv",
    "rotary": "RotaryEmbedding",
    "spectrum": "ComplexMul ComplexMulConj Irfft Rfft",
}

# Those that onnxruntime has, or had, among the operators of ai.onnx.
_OF_AI_ONNX = {
    "normalization": "SimplifiedLayerNormalization",
    "retired": "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh",
}

# Those of a layout that onnxruntime chooses for the processor it runs on.
_OF_BLOCKS = {
    "blocks": "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample",
}

TABLE: dict[tuple[str, str], str] = {
    (domain, op): family
    for domain, families in ((DOMAIN, _FAMILIES), ("", _OF_AI_ONNX), (BLOCKS, _OF_BLOCKS))
    for family, ops in families.items()
    for op in ops.split()
}
"""The module of each body, by domain and operator."""


class Bodies:
    """Those that were given, then ours; by domain and operator."""

    def __init__(self, given: Iterable[StaticBody | TracedBody] = ()):
        self.found: dict[tuple[str, str], StaticBody | TracedBody] = {}
        for body in given:
            self._take(body)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self.found or key in TABLE

    def find(self, domain: str, op: str) -> StaticBody | TracedBody:
        """Raises KeyError where there is none."""
        key = (domain, op)
        if key not in self.found:
            from relu_tools.bodies.body import body_of

            module = importlib.import_module(f"relu_tools.bodies.{TABLE[key]}")
            self._take(body_of(getattr(module, op), "body"), key)
        return self.found[key]

    def _take(self, body: StaticBody | TracedBody, key: tuple[str, str] | None = None) -> None:
        self.found[key or body.key] = body
        for called in body.called():
            self.found.setdefault(called.key, called)
