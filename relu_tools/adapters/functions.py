"""Operators that are defined by a function body which computes just what they do: below their birth it stands for them."""

from __future__ import annotations

from relu_tools.adapters import by_body

by_body("Attention", 23, 24, 25)
by_body("RotaryEmbedding RMSNormalization", 23)
by_body("LinearAttention CausalConvWithState", 27)
by_body("LayerNormalization SequenceMap", 17)
by_body("BlackmanWindow HammingWindow HannWindow", 17)
by_body("CenterCropPad Mish", 18)
by_body("Gelu", 20)
by_body("HardSwish", 14)
by_body("Swish", 24)
by_body("SwiGLU", 28)
by_body("DynamicQuantizeLinear", 11)
by_body("SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", 12)
by_body("Bernoulli", 15, 22)
by_body("MeanVarianceNormalization Shrink", 9)
