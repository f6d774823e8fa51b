"""Calls of operators with function bodies as models, and what is asked of their expansion."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Set
from typing import Any

import attention_meanings  # noqa: F401
import ml_dtypes
import numpy as np
import onnx
from function_calls import CALLS, Form
from function_meanings import MEANINGS
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import relu_tools
from relu_tools import irversion, schemas
from relu_tools.compare import is_float
from relu_tools.graphs import graphs_in
from relu_tools.runners import CannotRun, judges

# In units of the type's epsilon, of the element or the output's typical one: for types of 32 bits and more, and others.
WIDE, NARROW = 64, 10

VERSIONS = [
    version
    for domain in ("", "ai.onnx.ml")
    for op in sorted(schemas.names(domain))
    for version in schemas.history(domain, op)
    if version.has_body
]


@dataclasses.dataclass(frozen=True)
class Call:
    version: schemas.Version
    form: Form
    types: dict[str, str]
    attributes: dict[str, Any]
    inputs: list[str]
    outputs: tuple[int, ...]
    how: str
    """`fixed` sizes, sizes that only have a `symbolic` name, or inputs that are `stored` in the model."""

    def __str__(self) -> str:
        given = {name: v for name, v in self.attributes.items() if not callable(v)}
        return f"{self.types} {given} {self.inputs} -> {self.outputs} {self.how}"


def elem_type(text: str) -> int:
    return TensorProto.DataType.Value(text.removeprefix("seq(").removeprefix("tensor(").rstrip(")").upper())


def dtype_of(text: str) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type(text)))


def type_sets(version: schemas.Version, form: Form):
    """Each type of each type variable, the others at their first."""
    admitted = {}
    for name in form.inputs:
        formal = next((f for f in version.inputs if f.name == name), None)
        if formal is not None and "(" not in formal.var and formal.var not in form.tied:
            kinds = [t for t in sorted(formal.types) if t in form.only.get(formal.var, formal.types)]
            if version.op == "CastLike" and formal.name == "target_type":
                kinds.remove("tensor(string)")  # how a number is written is not said
            first = next((t for t in ("tensor(float)", "seq(tensor(float))", "tensor(int64)") if t in kinds), kinds[0])
            admitted[formal.var] = (first, *(t for t in kinds if t != first))
    firsts = {var: kinds[0] for var, kinds in admitted.items()}
    yield firsts
    for var, kinds in admitted.items():
        for kind in kinds[1:]:
            yield {**firsts, var: kind}


def calls(version: schemas.Version):
    """Every attribute with every element type; every choice of inputs and outputs with the first of the types."""
    count = len(version.outputs)
    for form in CALLS[version.op]:
        if form.since is not None and version.since not in form.since:
            continue
        outputs = form.outputs or [tuple(range(k)) for k in sorted({max(1, version.schema.min_output), count})]
        input_sets = list(form.input_sets(version))
        for k, types in enumerate(type_sets(version, form)):
            types = {**types, **{var: types[other] for var, other in form.tied.items()}}
            for attributes in form.attribute_sets(version):
                make = functools.partial(Call, version, form, types, attributes)
                if k:
                    yield make(input_sets[k % len(input_sets)], outputs[k % len(outputs)], "fixed")
                    continue
                yield from (make(inputs, asked, "fixed") for inputs in input_sets for asked in outputs)
                yield from (make(inputs, outputs[-1], how) for inputs in input_sets for how in ("symbolic", "stored"))


# --- a call as a model -----------------------------------------------------------------------
def plain(value: Any) -> Any:
    """As the meanings take them."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if is_float(value.dtype):
        return value.astype(np.float64)
    return value.astype(np.int64) if "int" in value.dtype.name else value


def rounded(value: Any, text: str | None) -> Any:
    if isinstance(value, list):
        return [rounded(v, text) for v in value]
    array = np.asarray(value)
    return array if text is None or array.dtype.kind in "OU" else array.astype(dtype_of(text))


@dataclasses.dataclass
class Built:
    model: onnx.ModelProto
    feeds: dict[str, Any]
    wanted: dict[str, Any]


def build(call: Call, opset: int) -> Built | None:
    version, form = call.version, call.form
    rng = np.random.default_rng(zlib.crc32(f"{version.op} {call}".encode()))
    formals = {f.name: f for f in version.inputs}
    arrays = {}
    for name in call.inputs:
        text = call.types.get(formals[name].var, "tensor(int64)")
        arrays[name] = form.inputs[name](dtype_of(text), rng)
    first = elem_type(call.types[version.inputs[0].var]) if version.inputs[0].var in call.types else TensorProto.INT64
    given = {name: value(first) if callable(value) else value for name, value in call.attributes.items()}
    with np.errstate(all="ignore"):
        meant = _meant(call, arrays, given)
    if meant is None:
        return None
    outputs = ["" for _ in range(max(call.outputs) + 1)]
    infos, wanted = [], {}
    for k in call.outputs:
        outputs[k] = version.outputs[k].name
        var = version.outputs[k].var
        text = var if "(" in var else call.types.get(var)
        if version.op == "LinearAttention" and "past_state" not in arrays:
            text = call.types["T"]
        if version.op == "Bernoulli" and "dtype" not in given:
            text = call.types["T1"]
        value = wanted[outputs[k]] = rounded(meant[k], text)
        infos.append(value_info(outputs[k], value, call.how))
    listed = [name if name in arrays else "" for name in formals]
    while not listed[-1]:
        listed.pop()
    node = helper.make_node(version.op, listed, outputs, name="call", domain=version.domain, **given)
    stored = [
        n for n, a in arrays.items() if isinstance(a, np.ndarray) and (call.how == "stored" or n in form.constants)
    ]
    graph = helper.make_graph(
        [node],
        "g",
        [value_info(name, array, call.how) for name, array in arrays.items() if name not in stored],
        infos,
        [numpy_helper.from_array(arrays[name], name) for name in stored],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(version.domain, opset)],
        ir_version=max(irversion.of_opset(opset), irversion.PRIVATE_INITIALIZERS),
    )
    return Built(model, {name: array for name, array in arrays.items() if name not in stored}, wanted)


def _meant(call, arrays, given):
    attributes = {
        a.name: schemas.value_of(a.default) for a in call.version.attributes.values() if a.default is not None
    }
    inputs = [plain(arrays[f.name]) if f.name in arrays else None for f in call.version.inputs]
    given = {name: float(np.float32(value)) if isinstance(value, float) else value for name, value in given.items()}
    meant = MEANINGS[call.version.op](*inputs, **{**attributes, **given})
    return meant if isinstance(meant, tuple) else (meant,)


def value_info(name: str, value: Any, how: str) -> onnx.ValueInfoProto:
    element = value[0] if isinstance(value, list) else value
    dtype = helper.np_dtype_to_tensor_dtype(element.dtype)
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, dtype, None)
    shape = [f"{name}_{k}" for k in range(element.ndim)] if how == "symbolic" else element.shape
    return helper.make_tensor_value_info(name, dtype, shape)


# --- what is asked of it ---------------------------------------------------------------------
def look(call: Call, opset: int) -> str:
    """What is wrong with the call's expansion; "" for nothing."""
    built = build(call, opset)
    op = call.version.op
    try:
        model = relu_tools.inline(built.model, [op]).model
    except relu_tools.ConversionError as error:
        return f"refused: {error}"
    if op in {node.op_type for graph in graphs_in(model.graph) for node in graph.node}:
        return "it is still there"
    return _what_is_wrong(model, built, call, opset)


def look_below(call: Call, opset: int, target: int) -> str | None:
    """What is wrong with the call at an opset that lacks the operator; "" for nothing, None where it is refused."""
    built = build(call, opset)
    try:
        model = relu_tools.convert_version(built.model, target)
    except relu_tools.ConversionError as error:
        assert all(refusal.reason for refusal in error.refusals)
        return None
    return _what_is_wrong(model, built, call, target)


def _what_is_wrong(model: onnx.ModelProto, built: Built, call: Call, opset: int) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(_untold(model), True, True, True)
    except Exception as error:
        return f"invalid: {error}"
    for info, found in zip(model.graph.output, inferred.graph.output, strict=True):
        if not _fits(info.type, found.type, strict=opset >= 7):
            return f"{info.name} is inferred as {str(found.type)!r}"
    return compare(run(model, built.feeds), built.wanted, call)


def _untold(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the types of its outputs, so that inference finds them by itself."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.output:
        info.ClearField("type")
    return copy


def _fits(declared: onnx.TypeProto, found: onnx.TypeProto, strict: bool) -> bool:
    if not strict and not found.WhichOneof("value"):
        return True
    if schemas.type_text(declared) != schemas.type_text(found):
        return False
    sizes = zip(declared.tensor_type.shape.dim, found.tensor_type.shape.dim, strict=False)
    return all(not (a.dim_value and b.dim_value) or a.dim_value == b.dim_value for a, b in sizes)


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """By onnxruntime, or by the reference evaluator (with old meanings below opset 7) where it has no kernels."""
    reasons = []
    for make in (*judges(model), lambda: Plain(model)):
        try:
            return make().run(feeds)
        except CannotRun as error:
            reasons.append(str(error))
        except RuntimeError as error:
            if "Numpy_type" not in str(error):  # one that onnxruntime's Python interface lacks
                raise
    raise AssertionError(f"nothing runs it: {reasons}")


class Plain:
    """onnx.reference as it is."""

    def __init__(self, model: onnx.ModelProto):
        self.evaluator = ReferenceEvaluator(model)

    def run(self, feeds: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(self.evaluator.output_names, self.evaluator.run(None, feeds), strict=True))


def _computed_in(call: Call) -> Set[str]:
    """The types that the operator computes in beside those of its outputs."""
    if call.version.op == "Attention":
        return {"tensor(float)"}  # in its body the scale is of that type
    stash = call.version.attributes.get("stash_type")
    if stash is None or call.version.op == "Range":
        return set()
    return {call.types["T"], schemas.tensor_text(call.attributes.get("stash_type", stash.default.i))}


def compare(found: dict[str, Any], wanted: dict[str, Any], call: Call, others: Set[str] = frozenset()) -> str:
    # Rounding decides what integer a logarithm is cut to.
    slack = int(call.version.op == "ReduceLogSumExp")
    for name, value in wanted.items():
        problem = _difference(found[name], value, _computed_in(call) | others, slack)
        if problem:
            return f"{name}: {problem}"
    return ""


def _difference(found: Any, wanted: Any, others: Set[str], slack: int) -> str:
    if isinstance(wanted, list):
        if len(found) != len(wanted):
            return f"{len(found)} elements, not {len(wanted)}"
        each = (_difference(a, b, others, slack) for a, b in zip(found, wanted, strict=True))
        return next(filter(None, each), "")
    found, wanted = np.asarray(found), np.asarray(wanted)
    if wanted.dtype.kind in "OUS":
        return "" if (found.astype(str) == wanted.astype(str)).all() else "other strings"
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if not is_float(wanted.dtype):
        same = (
            np.array_equal(found, wanted)
            if not slack
            else np.abs(found.astype(int) - wanted.astype(int)).max() <= slack
        )
    else:
        eps = max(float(ml_dtypes.finfo(t).eps) for t in (wanted.dtype, *map(dtype_of, others)))
        bound = (WIDE if wanted.dtype.itemsize > 2 else NARROW) * eps
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        sizes = np.abs(b[np.isfinite(b)])
        typical = float(np.mean(sizes)) if sizes.size else 0.0
        same = np.allclose(
            a,
            b,
            rtol=bound,
            atol=bound * typical + float(ml_dtypes.finfo(wanted.dtype).smallest_normal),
            equal_nan=True,
        )
    if same:
        return ""
    return f"{found.ravel()[:8].tolist()}, not {wanted.ravel()[:8].tolist()}"


def opsets(version: schemas.Version) -> range:
    return range(version.since, min(version.last, schemas.newest(version.domain)) + 1)


def sample(version: schemas.Version, everything: list, stride: int) -> list:
    """Every so-manieth of all, from a place on that depends on the operator."""
    return everything[zlib.crc32(f"{version.op}{version.since}".encode()) % min(stride, len(everything)) :: stride]


def expand(version: schemas.Version, stride: int) -> tuple[list[str], int]:
    """What is wrong with the expansion of every so-manieth call, and how many there were."""
    wrong = []
    chosen = sample(version, list(itertools.product(opsets(version), calls(version))), stride)
    for opset, call in chosen:
        if problem := _tried(look, call, opset):
            wrong.append(f"at opset {opset}: {call}: {problem[:300]}")
    return wrong, len(chosen)


def lower(version: schemas.Version, stride: int) -> tuple[list[str], int, int]:
    """What is wrong of every so-manieth call below the operator's birth, how many there were, how many are refused."""
    wrong, refused = [], 0
    birth = schemas.history(version.domain, version.op)[0].since
    targets = sorted({birth - 1, 18, 13, 10, 7} & set(range(7, birth)))
    chosen = sample(version, list(itertools.product(targets, calls(version))), stride) if targets else []
    for target, call in chosen:
        problem = _tried(look_below, call, version.since, target)
        refused += problem is None
        if problem:
            wrong.append(f"from {version.since} to {target}: {call}: {problem[:300]}")
    return wrong, len(chosen), refused


def _tried(check: Callable[..., str | None], *given: Any) -> str | None:
    try:
        return check(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
