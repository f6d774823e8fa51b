"""One-node models of com.microsoft operators, run by onnxruntime's own kernel and as what `inline` makes of them."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  so that numpy knows bfloat16
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import relu_tools

MICROSOFT = "com.microsoft"
OPSET = 21


def run(model, feeds, level="DISABLE_ALL", save=None):
    """The outputs by onnxruntime on the CPU; `save` is a path for the model that its optimizer makes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, level if level.startswith("ORT_") else f"ORT_{level}"
    )
    if save is not None:
        options.optimized_model_filepath = str(save)
    data = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def one_node(
    op,
    inputs,
    outputs=1,
    *,
    constants=(),
    dynamic=False,
    opset=OPSET,
    domain=MICROSOFT,
    expected=None,
    **attributes,
):
    """A model of one node, its feeds, and what onnxruntime's kernel gives; `expected` where it has none.

    `inputs` are arrays in order, None for one that is left out; those whose places are in `constants` are initializers.
    `outputs` is their number, or a list of booleans that say which there are. Dimensions are symbols where `dynamic`,
    all but the last one where it is "lead". An attribute that has the name of a parameter is written with "attr_".
    """
    names = ["" if value is None else f"x{k}" for k, value in enumerate(inputs)]
    wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
    made = [f"y{k}" if want else "" for k, want in enumerate(wanted)]
    set_ = {name.removeprefix("attr_"): value for name, value in attributes.items() if value is not None}
    node = helper.make_node(op, names, made, name="call", domain=domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in set_.items())
    given, stored, feeds = [], [], {}
    for k, (name, value) in enumerate(zip(names, inputs, strict=True)):
        if not name:
            continue
        value = np.asarray(value)
        if k in constants:
            stored.append(numpy_helper.from_array(value, name))
            continue
        shape = [f"{name}_{axis}" for axis in range(value.ndim)] if dynamic else list(value.shape)
        if dynamic == "lead" and value.ndim > 1:
            shape[-1] = value.shape[-1]
        given.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
        feeds[name] = value
    graph = helper.make_graph([node], "one", given, [onnx.ValueInfoProto(name=name) for name in made if name], stored)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, ir_version=10, opset_imports=imports)
    results = run(model, feeds) if expected is None else expected
    for info, value in zip(model.graph.output, results, strict=True):
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, dtype, [None] * value.ndim))
    return model, feeds, results


def standard(model):
    """Whether a model holds and imports operators of the standard alone, and passes the checker."""
    onnx.checker.check_model(model, full_check=True)
    imports = {opset.domain for opset in model.opset_import}
    return imports <= {"", "ai.onnx", "ai.onnx.ml"} and not model.functions


def inlined(model):
    """The model as standard ONNX."""
    result = relu_tools.inline(model).model
    assert standard(result), [opset.domain for opset in result.opset_import]
    return result


def compare(expected, actual, *, quanta=0, rtol=1e-5, atol=1e-6):
    """Holds integers to a number of quanta, floats to a tolerance."""
    assert len(expected) == len(actual)
    for a, b in zip(expected, actual, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        if a.dtype.kind in "iu":
            assert not a.size or np.abs(a.astype(np.int64) - b.astype(np.int64)).max() <= quanta
        else:
            np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=rtol, atol=atol)


def check(op, inputs, outputs=1, *, quanta=0, rtol=1e-5, atol=1e-6, **how):
    """That the inlined node gives what onnxruntime's kernel gives."""
    model, feeds, expected = one_node(op, inputs, outputs, **how)
    compare(expected, run(inlined(model), feeds), quanta=quanta, rtol=rtol, atol=atol)
