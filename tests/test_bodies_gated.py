"""Bodies of com.microsoft's gates against onnxruntime's own kernels, or numpy where it has none on the CPU."""

from __future__ import annotations

import numpy as np
from drawing import Draw, draws, same


@draws
def test_scaled_silu(seed):
    d = Draw(seed, np.float32, np.float16)
    scale = d.any(None, np.array(1.5, np.float32), np.array(0.25, np.float16))
    same("ScaledSiLU", [d.floats(*d.shape(2)) * 3, scale], alpha=d.any(None, 1.7), bound=d.bound, **d.how)


@draws
def test_swiglu(seed):
    d = Draw(seed, np.float32, np.float16)
    lead, half = d.shape(2), int(d.rng.integers(1, 5))
    gate, up = d.floats(*lead, half) * 3, d.floats(*lead, half) * 3
    alpha, beta, limit, rounded = d.any(1.0, 1.702), d.any(0.0, 1.0), d.any(0.0, 2.0), d.any(0, 1)
    g, linear = gate.astype(np.float64), up.astype(np.float64)
    if limit:
        g, linear = np.minimum(g, limit), np.clip(linear, -limit, limit)
    active = g / (1 + np.exp(-alpha * g))
    active = active.astype(d.dtype).astype(np.float64) if rounded else active
    expected = (active * (linear + beta)).astype(d.dtype)
    inputs = d.any([gate, up], [np.concatenate([gate, up], axis=-1)])
    how = dict(activation_alpha=alpha, activation_beta=beta, limit=limit, round_activation=rounded)
    same("SwiGLU", inputs, expected=[expected], bound=d.bound, **how, **d.how)


@draws
def test_gated_add(seed):
    d = Draw(seed, np.float32, np.float16)
    shape = d.shape(3)
    inputs = [d.floats(*shape), d.floats(*shape), d.floats(*shape[:-1], 1)]
    same("GatedAdd", inputs, bound=d.bound, **d.how)


@draws
def test_gated_rms_norm(seed):
    d = Draw(seed, np.float32, np.float16)
    lead, groups, width = d.shape(2), *d.shape(2)
    inputs = [d.floats(*lead, groups * width), d.floats(width), d.floats(*lead, groups * width)]
    how = {"activation": d.any(None, "silu", "swish", "sigmoid"), "epsilon": d.any(None, 1e-3)}
    same("GatedRMSNorm", inputs, bound=d.bound, **how, **{**d.how, "dynamic": False})


@draws
def test_branchwise_rms_norm(seed):
    d = Draw(seed, np.float32, np.float16)
    lead, (branches, width) = d.shape(2), d.shape(2, 2)
    flat = d.any(True, False)
    x = d.floats(*lead, branches * width) if flat else d.floats(*lead, branches, width)
    scale = d.any(None, d.floats(branches * width), d.floats(branches, width), d.floats(width))
    how = {**d.how, "dynamic": False}
    number = branches if flat else None
    same("BranchwiseRMSNorm", [x, scale], num_branches=number, epsilon=d.any(None, 1e-3), bound=d.bound, **how)


@draws
def test_linear_attention_gate(seed):
    d = Draw(seed, np.float32, np.float16)
    shape = d.shape(3)
    vectors = [np.float32(d.rng.standard_normal(shape[-1])) for _ in range(2)]
    rate = d.maybe(*shape)
    inputs = [d.floats(*shape), *vectors, rate]
    same("LinearAttentionGate", inputs, 1 if rate is None else 2, bound=d.bound, **d.how)
