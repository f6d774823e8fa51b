"""Converting and inlining whole models: what `relu_tools.convert` and `relu_tools.inline` do around the engine."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from relu_tools import irversion, schemas, structure
from relu_tools.bodies import DOMAIN as MICROSOFT
from relu_tools.bodies import Bodies
from relu_tools.census import census_of_outline
from relu_tools.facts import Scope
from relu_tools.graphs import free_names, graphs_in
from relu_tools.inlining import Selection, names
from relu_tools.legalize import Engine
from relu_tools.lowering import Rewritten
from relu_tools.model import Model, elements
from relu_tools.modelfile import LIMIT, ModelFile
from relu_tools.opening import AnyModel, count_nodes, engine_on, imported, opened, reader, targets_of
from relu_tools.outline import Outline
from relu_tools.report import ConversionError, ModelFileError, Refusal, Report, qualified
from relu_tools.writing import write_model

if TYPE_CHECKING:
    from relu_tools.inputs import Given
    from relu_tools.runtimes import Runtime
    from relu_tools.verification import Rewrite, Verification

Verify = Literal["changed", "full", "off"]
Progress = Callable[[int, int], None]

# A constant of no more elements takes part in the verification as it is; a larger one is a weight like any other.
AS_IT_IS = 1024


class VerificationError(ConversionError):
    """The two forms of the model were run and did not agree, or could not be run where that was asked for.

    `result` is what would have come out.
    """

    def __init__(self, verification: Verification, result: _Result | None = None):
        Exception.__init__(self, str(verification))
        self.refusals: list[Refusal] = []
        self.verification = verification
        self.result = result


@dataclasses.dataclass
class _Result:
    """A model and what was done to it. `model` is of the kind that was given, a ModelProto for a file.

    `rewritten` holds the nodes that were rewritten, with what stands in their place.
    """

    report: Report
    _file: ModelFile = dataclasses.field(repr=False)
    _back: Callable[[ModelFile], Any] = dataclasses.field(repr=False)
    rewritten: Sequence[Rewritten] = dataclasses.field(default=(), repr=False)

    @property
    def model(self) -> Any:
        if not hasattr(self, "_model"):
            self._model = self._back(self._file)
        return self._model

    def operators(self) -> set[str]:
        """The operators of its nodes, such as "Relu" and "my.domain::Op"."""
        tops = (self._file.model.graph, *self._file.model.functions)
        nodes = (node for top in tops for graph in graphs_in(top) for node in graph.node)
        return {qualified(schemas.normal(node.domain), node.op_type) for node in nodes}

    def save(
        self, target: str | os.PathLike[str], *, overwrite: bool = False, external_data: str | None = None
    ) -> None:
        """Writes the model, weights copied from file to file. Raises ModelFileError where it cannot be written.

        Data in other files stays there if the target lies in the same folder, and is copied if not. `external_data` is
        "keep" to copy nothing, "copy" to copy always, "embed" to take it into the model's file, or the name of a file
        beside the target that takes all large tensors.
        """
        write_model(self._file, target, overwrite=overwrite, external_data=external_data)


class Conversion(_Result):
    """The outcome of `convert`."""


class Inlining(_Result):
    """The outcome of `inline`."""


def convert(
    model: AnyModel,
    opset: int | Mapping[str, int] | None = None,
    *,
    runtime: str | os.PathLike[str] | Runtime | None = None,
    ir_version: int | Literal["keep"] | None = None,
    inline: Iterable[str] = (),
    verify: Verify = "changed",
    seed: int = 0,
    inputs: Sequence[Given] | None = None,
    seconds: float | None = None,
    memory_mb: int | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Converts a model to an opset, up or down; the model that is given is not changed.

    Args:
        model: A path, a ModelProto or an onnx_ir.Model.
        opset: The opset of ai.onnx, or one for each of several domains. It can be left out for a runtime.
        runtime: What the result is for, "onnxruntime==1.10" or a TOML file: it has kernels for all that is in the
            result, whose opset, unless given, is the model's own if that will do, else the highest that will.
        ir_version: The IR version of the result. By default it is lowered to that of the ONNX release that brought
            the opset and never raised; "keep" leaves it.
        inline: Function operators to expand on the way, such as "Relu" or "my.domain::Op".
        verify: "changed" runs each rewritten node against its replacement, "full" both whole models, "off" neither.
        seed: For the inputs of the verification.
        inputs: Sets of inputs for whole models, in place of those that are drawn: values by name, or .npz files or
            folders with input_0.pb and so on.
        seconds: How long a rewrite may take to be verified, 60 unless given, or the whole models, 120.
        memory_mb: What they may take; all of the machine's unless given.
        progress: Called with the number of rewrites that are verified and the number of all.

    Raises:
        ConversionError: Some nodes cannot be brought there; it holds a refusal for each.
        VerificationError: The two forms do not agree.
        ModelFileError: The model cannot be read.
        ValueError: There is no such opset, IR version or runtime.
    """
    if opset is None and runtime is None:
        raise ValueError("what to convert to is told by an opset or a runtime")
    _check_verify(verify)
    file, back = opened(model)
    opsets = imported(file.top)
    targets = None if opset is None else targets_of(opset, opsets)
    selection = Selection(ops=names(inline))
    conversion = _run(file, back, opsets, targets, ir_version, selection, Conversion, runtime=runtime)
    if verify != "off":
        _verify(conversion, file, _Trial(verify, seed, inputs, seconds, memory_mb, progress))
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
    bodies: Iterable[Any] = (),
    verify: Verify = "off",
    seed: int = 0,
    inputs: Sequence[Given] | None = None,
    seconds: float | None = None,
    memory_mb: int | None = None,
    progress: Progress | None = None,
) -> Inlining:
    """Puts function bodies in the place of the nodes that call them, at the opset that the model has.

    Args:
        model: A path, a ModelProto or an onnx_ir.Model; it is not changed.
        ops: The functions to expand, such as "Relu" or "my.domain::Op"; None is every function, those that schemas
            define, the model's own, and operators of com.microsoft that there is a body of.
        domains: Only functions of these domains.
        exclude: Functions that stay.
        primitive: Goes on with the functions that the expanded bodies call, named or not.
        missing_at: Only what this opset of ai.onnx lacks.
        bodies: onnxscript functions and FunctionProtos that stand for operators of their names and domains.
        verify, seed, inputs, seconds, memory_mb, progress: As for `convert`, but that nothing is run unless asked for.

    Raises ConversionError, VerificationError and ModelFileError as `convert` does, ValueError for a body of an
    operator that a schema defines.
    """
    _check_verify(verify)
    if isinstance(domains, str):
        raise TypeError("domains are a list of names, such as ['my.domain']")
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
    found = Bodies()
    if bodies:
        from relu_tools.bodies.given import given, taken_by_model

        found = given(bodies)
    inlining = _run(file, back, opsets, opsets, "keep", selection, Inlining, found)
    if bodies:
        inlining.report.notes += taken_by_model(found, file.model.functions)
    if verify != "off":
        _verify(inlining, file, _Trial(verify, seed, inputs, seconds, memory_mb, progress))
    return inlining


# --- the run -------------------------------------------------------------------------------
def _run(file, back, opsets, targets, ir_version, selection, kind, bodies=None, runtime=None):
    content = file.content if runtime is None else file.model
    outlined = isinstance(content, Outline)
    model = Model(file.top, opsets, reader(file), census_of_outline(content, opsets) if outlined else None)
    unreadable = structure.check(file, opsets, model.census)
    if runtime is None:
        engine = engine_on(model, targets, ir_version, selection, bodies)
        if outlined and not engine.stays:
            outlined = False
            model = Model(file.model, opsets, reader(file), model.census)
            engine = engine_on(model, targets, ir_version, selection, bodies)
    else:
        from relu_tools.fitting import engine_for
        from relu_tools.runtimes import find

        runtime = find(runtime)
        engine = engine_for(model, runtime, targets, ir_version, selection, bodies)
    work = engine.work
    if engine.refusals:
        raise ConversionError(engine.refusals)
    _import(work, engine)
    _set_ir_version(work, engine.ir_version, file)
    report = _report(model.proto, work, engine, opsets)
    report.notes += [unreadable] if unreadable else []
    made = dataclasses.replace(content, model=work) if outlined else work
    result = kind(report, dataclasses.replace(file, content=made), back)
    result.rewritten = engine.rewritten
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
    gone = {domain for domain, _, _ in (*engine.inlined, *engine.left_out)}
    replaced = (engine.replaced | gone) - schemas.domains()
    if MICROSOFT in seen and (MICROSOFT in replaced or engine.expand(MICROSOFT, "")):
        # Beside its own operators' domain onnxruntime's optimizer imports all others that it knows.
        replaced |= seen - {""}
    if replaced:
        _leave_out_imports(work, replaced)


def _leave_out_imports(work: ModelProto, domains: Iterable[str]) -> None:
    """Leaves out those of the domains that no operator is of any more: a runtime need not know them."""
    tops = (work.graph, *work.functions)
    left = {schemas.normal(node.domain) for top in tops for graph in graphs_in(top) for node in graph.node}
    left.update(schemas.normal(function.domain) for function in work.functions)
    for top in (work, *work.functions):
        for entry in [entry for entry in top.opset_import if entry.domain in domains and entry.domain not in left]:
            top.opset_import.remove(entry)


def _set_ir_version(work: ModelProto, ir_version: int, file: ModelFile) -> None:
    stays = work.ir_version == ir_version
    if not stays:
        work.ir_version = ir_version
    if ir_version < irversion.SPARSE and not stays:
        for graph in graphs_in(work.graph):
            for sparse in list(graph.sparse_initializer):
                graph.initializer.append(_dense(sparse, file))
                graph.sparse_initializer.remove(sparse)
    if ir_version < irversion.PRIVATE_INITIALIZERS:
        public = {info.name for info in work.graph.input}
        if stays:
            # What the model does against the rules of its own version it may go on doing.
            public.update(tensor.name for tensor in file.top.graph.initializer)
        for tensor in work.graph.initializer:
            if tensor.name not in public:
                work.graph.input.add(name=tensor.name).type.CopyFrom(
                    helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                )


def _dense(sparse: onnx.SparseTensorProto, file: ModelFile) -> TensorProto:
    values = numpy_helper.to_array(file.tensor(sparse.values))
    indices = numpy_helper.to_array(file.tensor(sparse.indices))
    name, size = sparse.values.name, elements(sparse.dims)
    if size * values.itemsize >= LIMIT:
        raise ModelFileError(f"sparse tensor '{name}' takes {size * values.itemsize} bytes when it is made dense")
    bounds = np.array(sparse.dims if indices.ndim == 2 else [size])
    if ((indices.reshape(-1, len(bounds)) < 0) | (indices.reshape(-1, len(bounds)) >= bounds)).any():
        raise ModelFileError(f"sparse tensor '{name}' has an index outside of its shape")
    dense = np.full(size, "" if values.dtype == object else 0, values.dtype)
    flat = np.ravel_multi_index(tuple(indices.T), tuple(sparse.dims)) if indices.ndim == 2 else indices
    dense[flat] = values
    return numpy_helper.from_array(dense.reshape(tuple(sparse.dims)), sparse.values.name)


def _report(original: ModelProto, work: ModelProto, engine: Engine, opsets: Mapping[str, int]) -> Report:
    before = engine.original.census.counts.total()
    public = {info.name for info in original.graph.input} & {t.name for t in original.graph.initializer}
    return Report(
        opsets_before=dict(opsets),
        opsets_after=imported(work),
        ir_before=original.ir_version,
        ir_after=work.ir_version,
        nodes_before=before,
        nodes_after=count_nodes(work) if engine.changes or original.functions else before,
        kept=before - len(engine.changes),
        changes=engine.changes,
        inlined_functions=[f"{domain}::{name}" for domain, name, _ in engine.inlined],
        unknown_domains=sorted(engine.unknown),
        notes=_notes(engine),
        no_longer_overridable=sorted({root for scope, name in engine.baked for root in scope.roots(name)} & public),
    )


def _notes(engine: Engine) -> list[str]:
    notes = [
        f"nothing calls the function {qualified(domain, name)}, which could not be converted: it was left out"
        for domain, name, _ in engine.left_out
    ]
    offered = sorted(qualified(*operator) for operator in engine.offered)
    if offered and engine.expand.ops == frozenset():
        notes.append(f"to become standard operators, {' and '.join(offered)} can be inlined")
    return notes


# --- proving it ------------------------------------------------------------------------------
def _check_verify(how: Any) -> None:
    if how not in get_args(Verify):
        raise ValueError(f"verify is {' or '.join(map(repr, get_args(Verify)))}, not {how!r}")


class _Trial(NamedTuple):
    """How a result is to be verified; `convert` says what each means."""

    how: Verify
    seed: int
    inputs: Sequence[Given] | None
    seconds: float | None
    memory_mb: int | None
    progress: Progress | None


def _verify(result: _Result, file: ModelFile, trial: _Trial) -> None:
    if trial.how == "changed":
        if trial.inputs is not None:
            raise ValueError("inputs are for whole models: verify them in full")
        if not result.rewritten:
            return
    from relu_tools.verification import verify, verify_rewrites

    limits: dict[str, Any] = {"seed": trial.seed, "memory_mb": trial.memory_mb}
    if trial.seconds is not None:
        limits["seconds"] = trial.seconds
    if trial.how == "full":
        verification = verify(file, result._file, inputs=trial.inputs, **limits)
    else:
        rewrites = [r for r in map(_rewrite, result.rewritten) if r is not None]
        if not rewrites:
            return
        functions = list(file.model.functions)
        targets = result._targets
        verification = verify_rewrites(
            [dataclasses.replace(r, after_opsets=targets, functions=functions) for r in rewrites],
            progress=trial.progress,
            **limits,
        )
    result.report.verification = verification
    if verification.verdict == "different" or (trial.how == "full" and not verification):
        raise VerificationError(verification, result)


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
