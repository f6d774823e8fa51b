"""What a conversion takes by the size of files and the shape of models: `python tests/benchmarks/files.py [MEGABYTES]`.

Each row is whole processes on the same file: ours, and `cp` or onnx's own converter. With more than 2000 megabytes the
latter is left out, which cannot read such a file.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper

from relu_tools import wire

sys.path.insert(0, str(Path(__file__).parent))
from process import Cost, cost, ours, peer, row  # noqa: E402

LAYERS = 60
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def layers(size: int) -> tuple[ModelProto, list[TensorProto]]:
    """MatMul and Relu in turn, at opset 14; and the weights, of about so many bytes together, without their data."""
    side = int((size / LAYERS / 4) ** 0.5)
    nodes, weights, last = [], [], "x"
    for k in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"]))
        nodes.append(helper.make_node("Relu", [f"m{k}"], [f"r{k}"]))
        weights.append(TensorProto(name=f"w{k}", data_type=FLOAT, dims=[side, side]))
        last = f"r{k}"
    return _model(nodes, [_info("x")], last), weights


def inside(path: Path, size: int) -> None:
    """Writes the model with its weights inside, a weight at a time."""
    model, weights = layers(size)
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    length = weights[0].dims[0] ** 2 * 4
    heads = [weight.SerializeToString() + b"\x4a" + wire.encode(length) for weight in weights]
    heads = [b"\x2a" + wire.encode(len(head) + length) + head for head in heads]
    total = len(graph) + sum(map(len, heads)) + len(heads) * length
    data = np.random.default_rng(0)
    with open(path, "wb") as file:
        file.write(model.SerializeToString() + b"\x3a" + wire.encode(total) + graph)
        for head in heads:
            file.write(head)
            file.write(data.bytes(length))


def beside(path: Path, size: int) -> None:
    """Writes the model with its weights in a file beside it, which takes no place on the disk."""
    model, weights = layers(size)
    length = weights[0].dims[0] ** 2 * 4
    for k, weight in enumerate(weights):
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "weights.bin", "offset": k * length, "length": length}.items():
            weight.external_data.add(key=key, value=str(value))
    model.graph.initializer.extend(weights)
    path.write_bytes(model.SerializeToString())
    with open(path.with_name("weights.bin"), "wb") as file:
        file.truncate(len(weights) * length)


def nested(levels: int) -> ModelProto:
    """An If in a Loop in an If, deeper than protobuf would let helpers make it."""
    wire.lift_depth()
    inner, result = [helper.make_node("Relu", ["v0"], ["r"])], "r"
    for k in range(levels):
        if k % 2:
            inputs = [_info(f"i{k}", INT64, []), _info(f"c{k}", BOOL, []), _info(f"v{k}")]
            inner.append(helper.make_node("Identity", [f"c{k}"], [f"go{k}"]))
            body = helper.make_graph(inner, "body", inputs, [_info(f"go{k}", BOOL, []), _info(result)])
            node = helper.make_node("Loop", ["trips", "go", f"v{k + 1}"], [f"o{k}"], body=body)
        else:
            other = helper.make_node("Sigmoid", [f"v{k + 1}"], [f"s{k}"])
            inner.insert(0, helper.make_node("Identity", [f"v{k + 1}"], [f"v{k}"]))
            branches = [
                helper.make_graph(*part)
                for part in ((inner, "a", [], [_info(result)]), ([other], "b", [], [_info(f"s{k}")]))
            ]
            node = helper.make_node("If", ["go"], [f"o{k}"], then_branch=branches[0], else_branch=branches[1])
        inner, result = [helper.make_node("Relu", [f"o{k}"], [f"r{k}"])], f"r{k}"
        inner.insert(0, node)
    return _model(inner, [_info(f"v{levels}"), _info("trips", INT64, []), _info("go", BOOL, [])], result)


def branching(count: int) -> ModelProto:
    """A chain of Ifs with a node in each branch."""
    nodes, last = [], "x"
    for k in range(count):
        branches = {
            f"{name}_branch": helper.make_graph(
                [helper.make_node(op, [last], [f"{name}{k}"])], name, [], [_info(f"{name}{k}")]
            )
            for name, op in (("then", "Relu"), ("else", "Sigmoid"))
        }
        nodes.append(helper.make_node("If", ["go"], [f"v{k}"], **branches))
        last = f"v{k}"
    return _model(nodes, [_info("x"), _info("go", BOOL, [])], last)


def calling(count: int) -> ModelProto:
    """A chain of calls, each of a function of its own."""
    nodes, functions, last = [], [], "x"
    for k in range(count):
        body = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Sigmoid", ["t"], ["b"])]
        functions.append(helper.make_function("own", f"F{k}", ["a"], ["b"], body, [helper.make_opsetid("", 14)]))
        nodes.append(helper.make_node(f"F{k}", [last], [f"v{k}"], domain="own"))
        last = f"v{k}"
    return _model(nodes, [_info("x")], last, functions)


def _info(name: str, kind: int = FLOAT, shape: list | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["N", "M"] if shape is None else shape)


def _model(nodes, inputs, output: str, functions=()) -> ModelProto:
    graph: GraphProto = helper.make_graph(nodes, "g", inputs, [_info(output)])
    imports = [helper.make_opsetid("", 14), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


def converting(source: Path, target: Path, opset: int = 15) -> list[str]:
    return ours("convert", str(source), "--opset", str(opset), "-o", str(target), "--force", "--verify", "off")


def weights(folder: Path, megabytes: int) -> None:
    source, target = folder / "inside.onnx", folder / "out.onnx"
    inside(source, megabytes * 1_000_000)
    copying = ["/bin/cp", str(source), str(target)]
    mine, copied = _in_turns(target, [converting(source, target), copying])
    row(f"{megabytes} MB inside, 14 to 15, against cp", mine, copied)
    if megabytes <= 2000:
        row(
            f"{megabytes} MB inside, onnx's converter against cp", cost(peer(str(source), "15", str(target)), 1), copied
        )
    source.unlink()
    beside(folder / "beside.onnx", 10 * megabytes * 1_000_000)
    row(f"{10 * megabytes} MB beside, referenced, 14 to 15", cost(converting(folder / "beside.onnx", target)))


def _in_turns(target: Path, commands: list[list[str]]) -> list[Cost]:
    """The fastest of some runs of each; in turns, so that all meet the disk as it is, and no target that is there."""
    runs: list[list[Cost]] = [[] for _ in commands]
    for _ in range(7):
        for command, costs in zip(commands, runs, strict=True):
            target.unlink(missing_ok=True)
            costs.append(cost(command, 1))
    return [min(costs, key=lambda taken: taken.wall) for costs in runs]


def shapes(folder: Path) -> None:
    """Time over that of starting, for a model and for one of twice its size: twice as much is linear."""
    source, target = folder / "net.onnx", folder / "out.onnx"
    start = cost(ours("--version"))
    kinds: dict[str, tuple[Callable[[int], ModelProto], int]] = {
        "graphs within graphs": (nested, 25),
        "Ifs of two graphs": (branching, 5000),
        "local functions": (calling, 2500),
    }
    for name, (make, count) in kinds.items():
        for opset in (15, 13):
            taken = []
            for size in (count, 2 * count):
                source.write_bytes(make(size).SerializeToString())
                taken.append(cost(converting(source, target, opset)))
                row(f"{size} {name}, 14 to {opset}", taken[-1])
            print(f"{'':<44} {(taken[1].cpu - start.cpu) / (taken[0].cpu - start.cpu):7.2f} times as much for twice")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        weights(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
        shapes(Path(place))
