"""Converting and inlining whole models: what `relu_tools.convert` and `relu_tools.inline` do around the engine."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from relu_tools import external, irversion, schemas
from relu_tools.facts import Model, Scope, elements, free_names, graphs_in
from relu_tools.inlining import Selection, names
from relu_tools.legalize import Engine, Rewritten
from relu_tools.modelfile import ModelFile, write_model
from relu_tools.opening import AnyModel, engine_on, imported, opened, reader, targets_of
from relu_tools.report import ConversionError, Refusal, Report, qualified

if TYPE_CHECKING:
    from relu_tools.verification import Rewrite, Verification

Verify = Literal["changed", "full", "off"]

# A constant of no more elements takes part in the verification as it is; a larger one is a weight like any other.
AS_IT_IS = 1024


class VerificationError(ConversionError):
    """The two forms of the model were run and did not agree, or could not be run where that was asked for."""

    def __init__(self, verification: Verification):
        Exception.__init__(self, str(verification))
        self.refusals: list[Refusal] = []
        self.verification = verification


@dataclasses.dataclass
class _Result:
    """A model and what was done to it. `model` is of the kind that was given, a ModelProto for a file."""

    report: Report
    _file: ModelFile = dataclasses.field(repr=False)
    _back: Callable[[ModelFile], Any] = dataclasses.field(repr=False)

    @property
    def model(self) -> Any:
        if not hasattr(self, "_model"):
            self._model = self._back(self._file)
        return self._model

    def save(self, target: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the model, weights copied from file to file. Raises ModelFileError where it cannot be written."""
        write_model(self._file, target, overwrite=overwrite)


class Conversion(_Result):
    """The outcome of `convert`."""


class Inlining(_Result):
    """The outcome of `inline`."""


def convert(
    model: AnyModel,
    opset: int | Mapping[str, int],
    *,
    ir_version: int | Literal["keep"] | None = None,
    inline: Iterable[str] = (),
    verify: Verify = "changed",
    seed: int = 0,
) -> Conversion:
    """Converts a model to an opset, up or down; the model that is given is not changed.

    Args:
        model: A path, a ModelProto or an onnx_ir.Model.
        opset: The opset of ai.onnx, or one for each of several domains.
        ir_version: The IR version of the result. By default it is lowered to that of the ONNX release that brought
            the opset and never raised; "keep" leaves it.
        inline: Function operators to expand on the way, such as "Relu" or "my.domain::Op".
        verify: "changed" runs each rewritten node against its replacement, "full" both whole models, "off" neither.
        seed: For the inputs of the verification.

    Raises:
        ConversionError: Some nodes cannot be brought there; it holds a refusal for each.
        VerificationError: The two forms do not agree.
        ModelFileError: The model cannot be read.
        ValueError: There is no such opset or IR version.
    """
    file, back = opened(model)
    opsets = imported(file.model)
    targets = targets_of(opset, opsets)
    conversion = _run(file, back, opsets, targets, ir_version, Selection(ops=names(inline)), Conversion)
    if verify != "off":
        _verify(conversion, file, verify, seed)
    return conversion


def convert_version(model: ModelProto, target_version: int) -> ModelProto:
    """Converts a model to an opset of ai.onnx: a stand-in for `onnx.version_converter.convert_version`.

    Like that function it runs nothing; use `convert` to have the result verified.
    Raises ConversionError, with a refusal for each node that cannot be brought there.
    """
    return convert(model, target_version, verify="off").model


def inline(
    model: AnyModel,
    ops: Iterable[str] | None = None,
    *,
    domains: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    primitive: bool = False,
    missing_at: int | None = None,
    verify: Verify = "off",
    seed: int = 0,
) -> Inlining:
    """Puts function bodies in the place of the nodes that call them, at the opset that the model has.

    Args:
        model: A path, a ModelProto or an onnx_ir.Model; it is not changed.
        ops: The functions to expand, such as "Relu" or "my.domain::Op"; None is every function, those that schemas
            define and the model's own.
        domains: Only functions of these domains.
        exclude: Functions that stay.
        primitive: Goes on with the functions that the expanded bodies call, named or not.
        missing_at: Only what this opset of ai.onnx lacks.
        verify: As for `convert`.
        seed: For the inputs of the verification.

    Raises ConversionError, VerificationError and ModelFileError as `convert` does.
    """
    file, back = opened(model)
    opsets = imported(file.model)
    if missing_at is not None:
        targets_of(missing_at, opsets)
    selection = Selection(
        ops=None if ops is None else names(ops),
        domains=None if domains is None else frozenset(map(schemas.normal, domains)),
        exclude=names(exclude),
        primitive=primitive,
        missing_at=missing_at,
    )
    inlining = _run(file, back, opsets, opsets, "keep", selection, Inlining)
    if verify != "off":
        _verify(inlining, file, verify, seed)
    return inlining


# --- the run -------------------------------------------------------------------------------
def _run(file, back, opsets, targets, ir_version, selection, kind):
    original = file.model
    engine = engine_on(Model(original, opsets, reader(file)), targets, ir_version, selection)
    work = engine.work
    if engine.refusals:
        raise ConversionError(engine.refusals)
    _import(work, engine)
    _set_ir_version(work, engine.ir_version, file)
    report = _report(original, work, engine, opsets)
    result = kind(report, dataclasses.replace(file, model=work), back)
    result._rewritten = engine.rewritten
    result._targets = engine.targets
    return result


def _import(work: ModelProto, engine: Engine) -> None:
    """Writes the targets into the model's imports, each domain once and spelled as it was."""
    targets = engine.targets
    seen = set()
    for entry in list(work.opset_import):
        domain = schemas.normal(entry.domain)
        if domain in seen:
            work.opset_import.remove(entry)
            continue
        seen.add(domain)
        if domain in targets and entry.version != targets[domain]:
            entry.version = targets[domain]
    # What stands in the place of an inlined function brings the function's imports along.
    for domain, version in engine.needed.items():
        if domain not in seen:
            work.opset_import.add(domain=domain, version=version)
            seen.add(domain)


def _set_ir_version(work: ModelProto, ir_version: int, file: ModelFile) -> None:
    if work.ir_version != ir_version:
        work.ir_version = ir_version
    if ir_version < irversion.SPARSE:
        for graph in graphs_in(work.graph):
            for sparse in list(graph.sparse_initializer):
                graph.initializer.append(_dense(sparse, file))
                graph.sparse_initializer.remove(sparse)
    if ir_version < irversion.PRIVATE_INITIALIZERS:
        public = {info.name for info in work.graph.input}
        for tensor in work.graph.initializer:
            if tensor.name not in public:
                work.graph.input.add(name=tensor.name).type.CopyFrom(
                    helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                )


def _dense(sparse: onnx.SparseTensorProto, file: ModelFile) -> TensorProto:
    values = numpy_helper.to_array(file.tensor(sparse.values))
    indices = numpy_helper.to_array(file.tensor(sparse.indices))
    dense = np.zeros(elements(sparse.dims), values.dtype)
    flat = np.ravel_multi_index(tuple(indices.T), tuple(sparse.dims)) if indices.ndim == 2 else indices
    dense[flat] = values
    return numpy_helper.from_array(dense.reshape(tuple(sparse.dims)), sparse.values.name)


def _count(model: ModelProto) -> int:
    return sum(len(graph.node) for top in (model.graph, *model.functions) for graph in graphs_in(top))


def _report(original: ModelProto, work: ModelProto, engine: Engine, opsets: Mapping[str, int]) -> Report:
    before = _count(original)
    public = {info.name for info in original.graph.input} & {t.name for t in original.graph.initializer}
    return Report(
        opsets_before=dict(opsets),
        opsets_after=imported(work),
        ir_before=original.ir_version,
        ir_after=work.ir_version,
        nodes_before=before,
        nodes_after=_count(work),
        kept=before - len(engine.changes),
        changes=engine.changes,
        inlined_functions=[f"{domain}::{name}" for domain, name, _ in engine.inlined],
        unknown_domains=sorted(engine.unknown),
        notes=[
            f"nothing calls the function {qualified(domain, name)}, which could not be converted: it was left out"
            for domain, name, _ in engine.left_out
        ],
        no_longer_overridable=sorted({root for scope, name in engine.baked for root in scope.roots(name)} & public),
    )


# --- proving it ------------------------------------------------------------------------------
def _verify(result: _Result, file: ModelFile, how: Verify, seed: int) -> None:
    from relu_tools.verification import verify, verify_rewrites

    if how == "full":
        verification = verify(_self_contained(file), _self_contained(result._file), seed=seed)
    else:
        rewrites = [r for r in map(_rewrite, result._rewritten) if r is not None]
        if not rewrites:
            return
        functions = list(file.model.functions)
        targets = result._targets
        verification = verify_rewrites(
            [dataclasses.replace(r, after_opsets=targets, functions=functions) for r in rewrites], seed=seed
        )
    result.report.verification = verification
    if verification.verdict == "different" or (how == "full" and not verification):
        raise VerificationError(verification)


def _with_makers(node: onnx.NodeProto, scope: Scope) -> list[onnx.NodeProto]:
    """A node after the nodes that make the sequences and optionals which it reads.

    The rewritten form may find an element where it came from.
    """
    nodes, waiting = [node], list(free_names([node]))
    while waiting:
        name = waiting.pop()
        owner = scope.owner(name)
        text = scope.text(name)
        if owner is None or text is None or text.startswith("tensor(") or name not in owner.producers:
            continue
        maker = owner.producers[name][0]
        if maker not in nodes:
            nodes.insert(0, maker)
            waiting.extend(maker.input)
    return nodes


def _self_contained(file: ModelFile) -> ModelProto:
    """The model with all of its weights in memory, external ones too."""
    model = ModelProto()
    model.CopyFrom(file.whole())
    for tensor in external.external_tensors(model):
        tensor.CopyFrom(file.tensor(tensor))
    return model


def _rewrite(rewritten: Rewritten) -> Rewrite | None:
    """A rewritten node as the verifier takes it; None where none is left to run, as for a stored Constant."""
    from relu_tools.verification import Rewrite

    if not rewritten.after:
        return None
    scope = rewritten.scope
    stored = {tensor.name: tensor for tensor in rewritten.initializers}
    before = _with_makers(rewritten.before, scope)
    names = free_names(before)
    names += [name for name in free_names(rewritten.after) if name not in names and name not in stored]
    constants = {name: tensor for name in names if (tensor := scope.constant(name, AS_IT_IS)) is not None}
    inputs = {name: scope.type(name) or onnx.TypeProto() for name in names if name not in constants}
    outputs = {name: scope.type(name) or onnx.TypeProto() for name in rewritten.before.output if name}
    return Rewrite(
        name=rewritten.change.node,
        before=before,
        before_opsets=rewritten.before_opsets,
        after=rewritten.after,
        after_opsets={},
        inputs=inputs,
        constants={**constants, **stored},
        outputs=outputs,
        accuracy=rewritten.change.accuracy,
    )
