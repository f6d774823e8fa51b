"""The table of steps: what is to be done where a step between neighbouring versions changes more than types.

A step that changed no meaning is declared with `same`; types, defaults and attributes that are at their default
are then the engine's work. Any other step needs an `adapter`. A step with neither is refused by name.

A family's module is imported when one of its operators is asked for, since few models hold many of them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from relu_tools import schemas
from relu_tools.report import qualified

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
WIDE_INTEGERS = (TensorProto.INT64, TensorProto.UINT64)

KEEP = object()
"""What an adapter returns for a node that it has no objection to: the general rules go on with it."""


class Adapter(NamedTuple):
    """A function that takes a node over one step.

    `accuracy` is "exact" or "rounding" (equal but for rounding). `opset` is the one that its nodes are written in,
    None for the step's own: the last opset before the node's version, or the first of the next version.
    """

    function: Callable[..., Any]
    accuracy: str
    opset: int | None = None

    @property
    def doc(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")


# What each family's module says something of.
FAMILIES = {
    "activation": """
        Celu Elu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax Mish PRelu Relu Selu Sigmoid Softmax Softplus
        Softsign Tanh ThresholdedRelu
    """,
    "attention": "Attention",
    "bitwise": "BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor",
    "cast": "Cast CastLike",
    "control": "If Loop Scan",
    "cumulative": "CumProd CumSum Range Trilu",
    "elementary": "Acos Acosh Asin Asinh Atan Atanh Cosh Erf IsInf IsNaN Mod Round Sign Sinh",
    "elements": """
        ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty
        SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence
    """,
    "functions": """
        Attention Bernoulli BlackmanWindow CausalConvWithState CenterCropPad DynamicQuantizeLinear Gelu HammingWindow
        HannWindow HardSwish LayerNormalization LinearAttention MeanVarianceNormalization Mish
        NegativeLogLikelihoodLoss RMSNormalization ReduceL2 ReduceLogSum ReduceLogSumExp RotaryEmbedding SequenceMap
        Shrink Softplus SoftmaxCrossEntropyLoss SwiGLU Swish
    """,
    "gathering": "Compress EyeLike GatherElements GatherND NonZero OneHot ReverseSequence",
    "generator": """
        Bernoulli Constant ConstantOfShape EyeLike Multinomial RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike Range
    """,
    "image": "GridSample NonMaxSuppression RoiAlign",
    "indexing": """
        Compress Gather GatherElements GatherND NonZero OneHot ReverseSequence Scatter ScatterElements ScatterND
        Unique
    """,
    "integers": "ConvInteger DequantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear",
    "linalg": "Det Einsum",
    "linear": "Det Einsum Gemm MatMul",
    "logical": "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Mul Or Pow Sub Xor",
    "loops": "Scan",
    "math": """
        Abs Acos Acosh Asin Asinh Atan Atanh Ceil Clip Cos Cosh Erf Exp Floor Log Max Mean Min Neg Reciprocal Sign Sin
        Sinh Sqrt Sum Tan
    """,
    "ml": """
        ai.onnx.ml::LabelEncoder ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier
        ai.onnx.ml::TreeEnsembleRegressor
    """,
    "nn": "Conv ConvTranspose DeformConv Dropout Flatten",
    "normalization": """
        BatchNormalization GroupNormalization InstanceNormalization LRN LpNormalization MeanVarianceNormalization
    """,
    "numeric": "BitShift CumSum DFT IsInf IsNaN Mod NegativeLogLikelihoodLoss Pow Round SoftmaxCrossEntropyLoss",
    "padding": "Pad",
    "placement": "Col2Im MaxUnpool TensorScatter",
    "pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxRoiPool MaxUnpool",
    "quantization": "DequantizeLinear QLinearMatMul QuantizeLinear",
    "reduction": """
        ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
        ReduceSum ReduceSumSquare TopK
    """,
    "resize": "Resize Upsample",
    "rnn": "GRU LSTM RNN",
    "sampling": "AffineGrid DeformConv GridSample RoiAlign",
    "scattering": "Scatter ScatterElements ScatterND",
    "sequence": "Optional OptionalGetElement OptionalHasElement SplitToSequence",
    "shapes": "DepthToSpace Expand Reshape Shape Size SpaceToDepth Squeeze Tile Unsqueeze",
    "slicing": "Slice Split",
    "spectrum": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    "suppression": "NonMaxSuppression",
    "tensor": "Concat Identity Transpose Where",
    "text": "ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
    "unique": "Unique",
}

TABLE: dict[tuple[str, str, int, int | None], Adapter] = {}
SAME: set[tuple[str, str, int, int]] = set()
BODIES: set[tuple[str, str, int]] = set()
OURS: dict[tuple[str, str, int], Adapter] = {}


def adapter(
    ops: str,
    source: int,
    target: int | None,
    *,
    accuracy: str = "exact",
    opset: int | None = None,
    domain: str = "",
):
    """Registers a function for the step `source` to `target` of each operator named in `ops`.

    Its parameters are the formal parameters of the source schema: after the builder the inputs by position, then
    the attributes by keyword, defaults filled in. `target` is None for the step below an operator's first version.
    With `opset` its nodes are written in another opset than the step's own, and legalized from there.
    It returns the values that stand for the node's outputs, or `KEEP`.

    Raises ValueError where the step does not exist or is taken twice, a parameter is none of the schema's, or the
    docstring is missing.
    """

    def register(function):
        if not function.__doc__:
            raise ValueError(f"the adapter {function.__name__} says nothing of what changed")
        for op in ops.split():
            if max(source, target or 0) > schemas.newest(domain):
                continue  # a step that the installed onnx does not know yet
            _check_family(function.__module__, domain, op)
            _check_step(domain, op, source, target)
            _check_parameters(function, domain, op, source)
            key = (domain, op, source, target)
            if key in TABLE:
                raise ValueError(f"{op} {source} to {target} is taken twice")
            TABLE[key] = Adapter(_quiet(function), accuracy, opset)
        return function

    return register


def body(ops: str, *versions: int, accuracy: str = "body", opset: int | None = None, domain: str = ""):
    """Registers a function as the body of these versions of operators, in the place of the schema's function body.

    For bodies that are not what the operator is, or not valid for all of its types and shapes. It is called as an
    adapter is; its nodes are written in `opset`, or else in the model's.
    Raises ValueError where a version has no function body, or two of ours.
    """

    def register(function):
        for op in ops.split():
            _check_family(function.__module__, domain, op)
            for version in versions:
                if version > schemas.newest(domain):
                    continue
                _check_body(domain, op, version)
                _check_parameters(function, domain, op, version)
                if (domain, op, version) in OURS:
                    raise ValueError(f"{op} {version} has two bodies")
                OURS[domain, op, version] = Adapter(_quiet(function), accuracy, opset)
        return function

    return register


def same(ops: str, *versions: int, domain: str = "") -> None:
    """Declares that each step between these neighbouring versions kept the meaning, in both directions."""
    module = sys._getframe(1).f_globals["__name__"]
    for op in ops.split():
        _check_family(module, domain, op)
        for lower, upper in zip(versions, versions[1:], strict=False):
            if upper > schemas.newest(domain):
                continue
            _check_step(domain, op, lower, upper)
            SAME.add((domain, op, lower, upper))


def by_body(ops: str, *versions: int, domain: str = "") -> None:
    """Declares that these versions' function bodies compute what the operators do: they stand for the step down.

    For operators whose body, the schema's or ours, was compared with them and found equal at every element type.
    """
    module = sys._getframe(1).f_globals["__name__"]
    for op in ops.split():
        _check_family(module, domain, op)
        for version in versions:
            if version > schemas.newest(domain):
                continue
            _check_body(domain, op, version)
            BODIES.add((domain, op, version))


def _quiet(function: Callable) -> Callable:
    """The function without numpy's warnings: what overflows does so as in the operator that constants stand for."""

    @functools.wraps(function)
    def quiet(*args, **kwargs):
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return quiet


def find(domain: str, op: str, source: int, target: int | None) -> Adapter | None:
    """The adapter for a step, if there is one; a `target` of None is below the operator's first version."""
    _load(domain, op)
    return TABLE.get((domain, op, source, target))


def has_body(domain: str, op: str, version: int) -> bool:
    """Whether the version's function body stands for the step down, by declaration."""
    _load(domain, op)
    return (domain, op, version) in BODIES


def body_of(domain: str, op: str, version: int) -> Adapter | None:
    """Our body of a version, where it takes the place of the schema's."""
    _load(domain, op)
    return OURS.get((domain, op, version))


def is_same(domain: str, op: str, source: int, target: int) -> bool:
    """Whether the step kept the meaning, by declaration."""
    _load(domain, op)
    return (domain, op, min(source, target), max(source, target)) in SAME


def load_all() -> None:
    """Imports all families, so that `TABLE`, `SAME`, `BODIES` and `OURS` are complete."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")


@functools.cache
def _load(domain: str, op: str) -> None:
    for family in _homes().get(qualified(domain, op), ()):
        importlib.import_module(f"{__name__}.{family}")


@functools.cache
def _homes() -> dict[str, list[str]]:
    homes: dict[str, list[str]] = {}
    for family, ops in FAMILIES.items():
        for op in ops.split():
            homes.setdefault(op, []).append(family)
    return homes


def _check_family(module: str, domain: str, op: str) -> None:
    package, _, family = module.rpartition(".")
    if package == __name__ and family not in _homes().get(qualified(domain, op), ()):
        raise ValueError(f"FAMILIES does not list {qualified(domain, op)} under '{family}'")


def _check_body(domain: str, op: str, version: int) -> None:
    found = schemas.at(domain, op, version)
    if found is None or found.since != version or not found.has_body:
        raise ValueError(f"{op} {version} has no function body")


def _check_step(domain: str, op: str, source: int, target: int | None) -> None:
    births = [version.since for version in schemas.history(domain, op)]
    low, high = sorted((source, target or 0))
    known = births[:1] == [source] if target is None else (low, high) in zip(births, births[1:], strict=False)
    if not known:
        raise ValueError(f"{op} has no step {source} to {target}: its versions are {births}")


def _check_parameters(function: Callable, domain: str, op: str, source: int) -> None:
    version = schemas.at(domain, op, source)
    assert version is not None
    inputs = [formal.name for formal in version.inputs]
    kinds = inspect.Parameter
    for k, parameter in enumerate(list(inspect.signature(function).parameters.values())[1:]):
        if parameter.kind is kinds.POSITIONAL_OR_KEYWORD:
            known = k < len(inputs)
        elif parameter.kind is kinds.KEYWORD_ONLY:
            known = parameter.name in version.attributes
        else:
            known = True
        if not known:
            raise ValueError(f"{function.__name__}: '{parameter.name}' is no formal of {op} {source}")
