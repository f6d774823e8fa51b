"""Write the sample models of this folder: `python models/make.py`, about half a minute.

relu_1, relu_6, relu_13, relu_14      one Relu for each element type that the version admits
relu_14_float                         a single Relu, which every opset has
thresholdedrelu_10, _22               likewise, each with its attribute and without
control                               sparse coding by a Loop and two Ifs, one of them within, that capture names
functions                             nested model-local functions with attributes and an opset import of their own
digits                                a convolutional network, trained: 352 of 360 test images right (97.8 %);
                                      the images and their labels are in digits_test.npz

The same library versions write the same bytes, for the weights of digits on the same kind of processor. Each model
passes onnx's checker. digits needs scikit-learn, for its data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, parser

HERE = Path(__file__).parent

FLOATS = ["float16", "float", "double"]
INTEGERS = ["int8", "int16", "int32", "int64"]


def header(opset: int) -> str:
    """The head of a model in ONNX text, with the IR version of the release that brought the opset."""
    ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    return f'<ir_version: {ir_version}, opset_import: ["": {opset}]>'


def one_per_type(op_type: str, opset: int, types: list[str], attributes: dict[str, str]) -> onnx.ModelProto:
    """Nodes of `op_type` for each element type, x_float to y_float; `attributes` holds those of each, by its suffix."""
    forms = [(kind, suffix, written) for kind in types for suffix, written in attributes.items()]
    inputs = ", ".join(f"{kind}[N] x_{kind}" for kind in types)
    outputs = ", ".join(f"{kind}[N] y_{kind}{suffix}" for kind, suffix, _ in forms)
    nodes = "\n".join(f"y_{kind}{suffix} = {op_type}{written}(x_{kind})" for kind, suffix, written in forms)
    return parser.parse_model(f"{header(opset)} {op_type.lower()}_{opset} ({inputs}) => ({outputs}) {{ {nodes} }}")


def relu(opset: int, types: list[str], attributes: str = "") -> onnx.ModelProto:
    return one_per_type("Relu", opset, types, {"": attributes})


def relu_14_float() -> onnx.ModelProto:
    return parser.parse_model(f"{header(14)} relu_14_float (float[N] x) => (float[N] y) {{ y = Relu(x) }}")


def thresholdedrelu(opset: int, types: list[str]) -> onnx.ModelProto:
    return one_per_type("ThresholdedRelu", opset, types, {"": "<alpha = 2.5>", "_default": ""})


def control() -> onnx.ModelProto:
    """Proximal gradient descent (ISTA) to a sparse code of a signal, of both signs or nonnegative."""
    return parser.parse_model(f"""
        {header(14)}
        control (float[M, N] dictionary, float[M] signal, float[N] start, float rate, float penalty, int64 steps,
                 bool signed) => (float[N] code, float[steps, M] misses)
        {{
            first = If (signed) <
                then_branch = both_signs () => (float[N] any) {{ any = Identity (start) }},
                else_branch = nonnegative () => (float[N] cut) {{ cut = Relu (start) }}
            >
            code, misses = Loop (steps, "", first) <
                body = descend (int64 i, bool go, float[N] old) => (bool go_on, float[N] new, float[M] miss) {{
                    go_on = Identity (go)
                    fit = MatMul (dictionary, old)
                    miss = Sub (fit, signal)
                    gradient = MatMul (miss, dictionary)
                    move = Mul (rate, gradient)
                    moved = Sub (old, move)
                    above = Sub (moved, penalty)
                    positive = Relu (above)
                    new = If (signed) <
                        then_branch = both_signs () => (float[N] shrunk) {{
                            opposite = Neg (moved)
                            below = Sub (opposite, penalty)
                            negative = Relu (below)
                            shrunk = Sub (positive, negative)
                        }},
                        else_branch = nonnegative () => (float[N] same) {{ same = Identity (positive) }}
                    >
                }}
            >
        }}
    """)


def functions() -> onnx.ModelProto:
    """Shrinking activations; HardShrink is on opset 15, where each of its operators is the version of 17."""
    return parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17, "samples": 1]>
        functions (float[N] x) => (float[N] leaky, float[N] positive) {
            leaky = samples.LeakyShrink <lambd = 1.0> (x)
            positive = samples.PositiveShrink (x)
        }
        <domain: "samples", opset_import: ["": 17, "samples": 1]>
        LeakyShrink <lambd, slope: float = 0.125> (x) => (y) {
            leaked = LeakyRelu <alpha: float = @slope> (x)
            y = samples.HardShrink <lambd: float = @lambd> (leaked)
        }
        <domain: "samples", opset_import: ["": 17, "samples": 1]>
        PositiveShrink (x) => (y) {
            shrunk = samples.HardShrink (x)
            y = Relu (shrunk)
        }
        <domain: "samples", opset_import: ["": 15]>
        HardShrink <lambd: float = 0.5> (x) => (y) {
            above = ThresholdedRelu <alpha: float = @lambd> (x)
            opposite = Neg (x)
            below = ThresholdedRelu <alpha: float = @lambd> (opposite)
            y = Sub (above, below)
        }
    """)


def squareplus() -> onnx.ModelProto:
    """An operator that only own_ops.py defines."""
    return parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17, "own": 1]>
        squareplus (float[N] x) => (float[N] y) { y = own.Squareplus(x) }
    """)


def digits() -> onnx.ModelProto:
    # It needs scikit-learn, the others do not.
    import digits as network

    return network.export(network.train())


# Binary where the text form would lose something: it has no place for the defaults of a function's attributes.
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "relu_1.onnxtxt": lambda: relu(1, FLOATS, "<consumed_inputs = [0]>"),
    "relu_6.onnxtxt": lambda: relu(6, FLOATS),
    "relu_13.onnxtxt": lambda: relu(13, [*FLOATS, "bfloat16"]),
    "relu_14.onnxtxt": lambda: relu(14, [*FLOATS, "bfloat16", *INTEGERS]),
    "relu_14_float.onnxtxt": relu_14_float,
    "thresholdedrelu_10.onnxtxt": lambda: thresholdedrelu(10, FLOATS),
    "thresholdedrelu_22.onnxtxt": lambda: thresholdedrelu(22, [*FLOATS, "bfloat16"]),
    "control.onnxtxt": control,
    "squareplus.onnxtxt": squareplus,
    "functions.onnx": functions,
    "digits.onnx": digits,
}


def write(model: onnx.ModelProto, path: Path) -> None:
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    if onnx.load(path) != model:
        raise RuntimeError(f"{path.name} does not read back as it was written")


def main() -> None:
    for name, build in MODELS.items():
        write(build(), HERE / name)
        print(f"{name}: {(HERE / name).stat().st_size:,} bytes")
    import digits as network

    images, labels = network.test_set()
    np.savez_compressed(HERE / "digits_test.npz", image=images, digit=labels)


if __name__ == "__main__":
    main()
