"""What a conversion takes by the number of nodes: `python tests/benchmarks/nodes.py`.

Each row is whole processes on the same file: ours, and onnx's own converter where it can do the job. It cannot bring a
Relu from opset 14 to 13, so that the downgrade stands against its upgrade.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
from process import cost, ours, peer, row  # noqa: E402


def chain(nodes: int) -> onnx.ModelProto:
    """Relu, Add, Sigmoid and Mul in turn, at opset 14."""
    made, last = [], "x"
    for k in range(nodes):
        op = ("Relu", "Add", "Sigmoid", "Mul")[k % 4]
        inputs = [last, "x"] if op in ("Add", "Mul") else [last]
        last = f"v{k}"
        made.append(helper.make_node(op, inputs, [last], name=f"n{k}"))
    return _model(made, last, [], [4], 14, 7)


def transformer(layers: int) -> onnx.ModelProto:
    """21 nodes a layer at opset 20, of which 7 must be rewritten for opset 11."""
    made: list[onnx.NodeProto] = []

    def node(op: str, *inputs: str, **attributes) -> str:
        name = f"v{len(made)}"
        made.append(helper.make_node(op, inputs, [name], name=f"n{len(made)}", **attributes))
        return name

    x = "x"
    for _ in range(layers):
        y = node("LayerNormalization", x, "scale", "bias")
        query, key, value = (node("MatMul", y, "weight") for _ in range(3))
        scores = node("MatMul", query, node("Transpose", key, perm=[0, 2, 1]))
        attended = node("MatMul", node("Softmax", scores), value)
        x = node("Add", x, node("MatMul", attended, "weight"))
        y = node("Sub", x, node("ReduceMean", x, "axes"))
        y = node("MatMul", node("Gelu", node("MatMul", y, "weight")), "weight")
        y = node("Sub", y, node("ReduceMax", y, "axes"))
        y = node("CastLike", node("Cast", y, to=TensorProto.DOUBLE), x)
        x = node("LayerNormalization", node("Add", x, y), "scale", "bias")
    stored = {
        "axes": np.array([-1]),
        "scale": np.ones(64, np.float32),
        "bias": np.zeros(64, np.float32),
        "weight": np.eye(64, dtype=np.float32),
    }
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    return _model(made, x, tensors, ["batch", "length", 64], 20, 9)


def _model(nodes, last, tensors, shape, opset, ir_version) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target, other = (str(Path(folder, name)) for name in ("in.onnx", "out.onnx", "peer.onnx"))

        def convert(opset: int, *options: str) -> list[str]:
            return ours("convert", source, "--opset", str(opset), "-o", target, "--force", *options)

        onnx.save(chain(100_000), source)
        upgrade = cost(peer(source, "15", other))
        row("100,000 nodes, 14 to 15", cost(convert(15, "--verify", "off")), upgrade)
        row("100,000 nodes, 14 to 13", cost(convert(13, "--verify", "off")), upgrade)
        onnx.save(chain(20), source)
        upgrade = cost(peer(source, "15", other))
        row("20 nodes, 14 to 15", cost(convert(15, "--verify", "off")), upgrade)
        row("20 nodes, 14 to 15, verified", cost(convert(15)), upgrade)
        row("20 nodes, 14 to 13", cost(convert(13, "--verify", "off")), upgrade)
        row("20 nodes, 14 to 13, verified", cost(convert(13)), upgrade)
        for layers in (60, 120, 240, 480):
            onnx.save(transformer(layers), source)
            mine = cost(convert(11, "--verify", "off"))
            row(f"{21 * layers:,} nodes, {7 * layers:,} rewritten, 20 to 11", mine)
            print(f"{'':<44} {1000 * mine.cpu / (7 * layers):7.2f} ms cpu for each rewritten node")
        onnx.save(transformer(240), source)
        row("5,040 nodes, 1,680 rewritten, verified", cost(convert(11), runs=1))


if __name__ == "__main__":
    main()
