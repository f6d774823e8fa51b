"""Writes what a runtime runs as the TOML that `relu_tools.runtimes` reads, captured from onnxruntime itself."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping

from onnx import NodeProto, TensorProto, helper

from relu_tools import irversion, schemas
from relu_tools.report import qualified

Product = dict[str, frozenset[str]]
"""Types by type variable, all combinations of which are meant."""
Kernels = Mapping[tuple[str, str], Mapping[int, list[Product]]]
"""By domain and operator, then by the version of the operator."""

DOMAINS = ("ai.onnx", "ai.onnx.ml", "com.microsoft")
PROVIDER = "CPUExecutionProvider"
MOVES = ("MemcpyFromHost", "MemcpyToHost")
"""What it puts into graphs itself, between processors; no model holds them."""
_MANY = 64


def onnxruntime_installed() -> str:
    """The TOML for the onnxruntime that is installed: the registry of its CPU kernels, and what it loads.

    Raises ImportError where there is none, and RuntimeError where it does not tell its kernels, as in releases
    before 1.11 or so.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    if not hasattr(state, "get_all_opkernel_def"):
        raise RuntimeError(f"onnxruntime {onnxruntime.__version__} does not tell its kernels")
    opsets = {domain: _highest(lambda n: _has_opsets({schemas.normal(domain): n})) for domain in DOMAINS}  # noqa: B023
    kernels = _registered(state.get_all_opkernel_def(), opsets)
    # A Constant becomes an initializer and needs no kernel.
    kernels["", "Constant"] = {version.since: [{}] for version in schemas.history("", "Constant")}
    return toml(
        {
            "name": "onnxruntime",
            "version": onnxruntime.__version__,
            "source": f"its registry of kernels, {PROVIDER}; opsets and IR version by loading models",
            "date": datetime.date.today(),
            "ir_version": _highest(lambda n: _has_opsets({}, n)),
            "expands": True,
            "through": {"float16": "float"},
        },
        opsets,
        kernels,
        {f"{op}.layout": [0] for op in ("GRU", "LSTM", "RNN") if not _takes_batches_first(op)},
    )


def _has_opsets(opsets: Mapping[str, int], ir_version: int = irversion.PRIVATE_INITIALIZERS) -> bool:
    """Whether onnxruntime loads a model of one node with these imports."""
    return _loads(helper.make_node("Identity", ["a"], ["y"]), {"": 7, **opsets}, ir_version)


def _takes_batches_first(op: str) -> bool:
    """Whether there is a kernel for the layout 1 of a recurrent operator; a registry does not tell that."""
    node = helper.make_node(op, ["a", "b", "c"], ["y"], hidden_size=1, layout=1)
    return _loads(node, {"": 14}, 7)


def _loads(node: NodeProto, opsets: Mapping[str, int], ir_version: int) -> bool:
    """Whether onnxruntime loads a model of one node on floats of three dimensions."""
    import onnxruntime

    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, None, 1]) for name in node.input]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "graph", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[PROVIDER])
    except Exception:  # onnxruntime has an exception class for each of its statuses
        return False
    return True


def _highest(loads: Callable[[int], bool]) -> int:
    return max((number for number in range(1, _MANY) if loads(number)), default=0)


def _registered(definitions: Iterable, opsets: Mapping[str, int]) -> dict[tuple[str, str], dict[int, list[Product]]]:
    kernels: dict[tuple[str, str], dict[int, list[Product]]] = {}
    for kernel in definitions:
        domain = schemas.normal(kernel.domain)
        if kernel.provider != PROVIDER or (domain or "ai.onnx") not in opsets:
            continue
        if kernel.op_name in MOVES:
            continue
        first, last = kernel.version_range
        births = [v.since for v in schemas.history(domain, kernel.op_name)]
        if first < min(births, default=first + 1):
            births.insert(0, first)  # from before the operator had a schema
        # A range without an end holds for the version that it begins with: the next one may mean something else.
        for version in births:
            if version == first or first < version <= last < (1 << 31) - 1:
                constraints = {var: frozenset(types) for var, types in kernel.type_constraints.items()}
                kernels.setdefault((domain, kernel.op_name), {}).setdefault(version, []).append(constraints)
    return kernels


# --- as text ---------------------------------------------------------------------------------
def toml(
    head: Mapping[str, object], opsets: Mapping[str, int], kernels: Kernels, attributes: Mapping[str, list]
) -> str:
    """The file's text: a line for each operator, its versions together where they take the same types."""
    lines = [f"{key} = {_value(value)}" for key, value in head.items()]
    lines += ["", "[opsets]", *(f"{_key(domain)} = [1, {highest}]" for domain, highest in opsets.items())]
    lines += ["", "[operators]"]
    for domain, op in sorted(kernels):
        entries = _entries(domain, op, kernels[domain, op])
        if len(entries) == 1:
            lines.append(f"{_key(qualified(domain, op))} = {json.dumps(entries[0])}")
        else:
            lines += [f"{_key(qualified(domain, op))} = [", *(f"    {json.dumps(e)}," for e in entries), "]"]
    if attributes:
        lines += ["", "[attributes]", *(f"{json.dumps(name)} = {json.dumps(v)}" for name, v in attributes.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items()) + " }"
    return str(value) if isinstance(value, datetime.date) else json.dumps(value)


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() else json.dumps(key)


def _entries(domain: str, op: str, by_version: Mapping[int, list[Product]]) -> list[str]:
    births = [version.since for version in schemas.history(domain, op)]
    following = dict(zip(births, births[1:], strict=False))
    ranges: dict[str, list[list[int]]] = {}
    for version in sorted(by_version):
        for types in _texts(schemas.at(domain, op, version), by_version[version]):
            runs = ranges.setdefault(types, [])
            if runs and following.get(runs[-1][1]) == version:
                runs[-1][1] = version
            else:
                runs.append([version, version])
    entries = []
    for types, runs in ranges.items():
        versions = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
        entries.append(f"{versions}: {types}" if types else versions)
    return entries


def _texts(version: schemas.Version | None, products: list[Product]) -> list[str]:
    """The types of a version, as few products as merging finds, each as text."""
    if version is None:
        return [""]  # without a schema nothing tells which values a type variable is of
    formals = [*version.inputs, *version.outputs]
    full = {formal.var: formal.types for formal in formals}
    # A kernel may name a formal parameter instead of its type variable.
    variables = {**{formal.name: formal.var for formal in formals}, **{var: var for var in full}}
    known = []
    for product in products:
        named = {variables[var]: types for var, types in product.items() if var in variables}
        known.append({var: types & full[var] for var, types in named.items() if full[var] - types})
    texts = []
    for product in merge(known):
        told = {var: _listed(types, full[var]) for var, types in product.items() if full[var] - types}
        if list(told) == [formals[0].var]:
            texts.append(told[formals[0].var])
        else:
            texts.append("; ".join(f"{var} = {types}" for var, types in sorted(told.items())))
    return sorted(set(texts))


def merge(products: list[Product]) -> list[Product]:
    """The same combinations in fewer products: those that differ in one variable are put together."""
    found = products
    for var in sorted({var for product in products for var in product}):
        groups: dict[tuple, Product] = {}
        for product in found:
            rest = tuple(sorted((v, tuple(sorted(types))) for v, types in product.items() if v != var))
            other = groups.setdefault(rest, {**product})
            if var in other and var in product:
                other[var] |= product[var]
            else:
                other.pop(var, None)
        found = list(groups.values())
    return found


def _listed(types: frozenset[str], full: frozenset[str]) -> str:
    rest = full - types
    few = types if len(types) <= 2 * len(rest) else rest
    order = [schemas.tensor_text(dtype)[7:-1] for dtype in TensorProto.DataType.values()]
    names = [text[7:-1] if text.startswith("tensor(") else text for text in few]
    names.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    return ("not " if few is rest else "") + ", ".join(names)
