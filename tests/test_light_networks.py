"""The nine `light_*` networks of the onnx package (opset 9) on other opsets and back again.

They are known image networks whose weights are all 0.02, so that they fit into kilobytes. Each ships with the output
for the input that onnx's own backend tests feed: 0, 1/n, 2/n ... over its n elements. Equal weights make the final
Softmax say 0.001 whatever went before, so what goes into it is compared too.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from relu_tools import convert_version

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
NETWORKS = sorted(path.stem for path in LIGHT.glob("*.onnx"))
OPSETS = range(7, min(28, onnx.defs.onnx_opset_version()) + 1)

# Between them, these hold every operator that one of the nine holds, except Transpose and Sum.
SAMPLE_NETWORKS = {"light_inception_v1", "light_densenet121"}
SAMPLE_OPSETS = {7, 8, 13, OPSETS[-1]}

Arrays = list[np.ndarray]


def sampled(inside: bool) -> list[pytest.MarkDecorator]:
    return [] if inside else [pytest.mark.slow]


def load(network: str) -> onnx.ModelProto:
    """The network, with the input of its Softmax as a second output."""
    model = onnx.load(LIGHT / f"{network}.onnx")
    for node in model.graph.node:
        if node.op_type == "Softmax":
            model.graph.output.add(name=node.input[0]).type.CopyFrom(model.graph.output[0].type)
    return model


def run(model: onnx.ModelProto) -> Arrays:
    initialized = {tensor.name for tensor in model.graph.initializer}
    (image,) = (value for value in model.graph.input if value.name not in initialized)
    shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    size = np.prod(shape)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {image.name: (np.arange(size).reshape(shape) / size).astype(np.float32)})


@functools.lru_cache(maxsize=1)
def expected(network: str) -> Arrays:
    """The output that ships beside the network and, by the unconverted network, what goes into its Softmax."""
    shipped = numpy_helper.to_array(onnx.load_tensor(LIGHT / f"{network}_output_0.pb"))
    return [shipped, *run(load(network))[1:]]


@functools.cache
def runtime_reads(opset: int) -> bool:
    model = onnx.parser.parse_model(
        f'<ir_version: 3, opset_import: ["": {opset}]> g (float x) => (float y) {{y = Relu(x)}}'
    )
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def assert_gives(model: onnx.ModelProto, arrays: Arrays) -> None:
    # The tolerance of onnx's backend tests for these networks.
    for actual, array in zip(run(model), arrays, strict=True):
        np.testing.assert_allclose(actual, array, rtol=2e-3, atol=1e-7)


def test_there_are_nine():
    assert len(NETWORKS) == 9
    assert set(NETWORKS) > SAMPLE_NETWORKS


@pytest.mark.parametrize("network", [pytest.param(n, marks=sampled(n in SAMPLE_NETWORKS)) for n in NETWORKS])
def test_unconverted_network_gives_its_output(network):
    assert_gives(load(network), expected(network))


@pytest.mark.parametrize(
    ("network", "opset"),
    [
        pytest.param(network, opset, marks=sampled(network in SAMPLE_NETWORKS and opset in SAMPLE_OPSETS))
        for network in NETWORKS
        for opset in OPSETS
    ],
)
def test_there_and_back(network, opset):
    if not runtime_reads(opset):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} does not read opset {opset}")
    model = load(network)
    own = model.opset_import[0].version

    there = convert_version(model, opset)
    assert list(there.opset_import) == [helper.make_opsetid("", opset)]
    onnx.checker.check_model(there, full_check=True)
    assert_gives(there, expected(network))

    back = convert_version(there, own)
    assert list(back.opset_import) == [helper.make_opsetid("", own)]
    onnx.checker.check_model(back, full_check=True)
    assert_gives(back, expected(network))
