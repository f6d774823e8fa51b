"""What a conversion, an inlining and a check begin with: the given model, its opsets, the engine's run on it."""

from __future__ import annotations

import dataclasses
import numbers
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx
from onnx import ModelProto, TensorProto

from relu_tools import irversion, schemas
from relu_tools.bodies import Bodies
from relu_tools.graphs import graphs_in
from relu_tools.inlining import Selection
from relu_tools.legalize import Engine, legalize
from relu_tools.lowering import NOTHING
from relu_tools.model import Model
from relu_tools.modelfile import ModelFile, open_model
from relu_tools.report import ModelFileError

if TYPE_CHECKING:
    import onnx_ir  # noqa: F401

AnyModel: TypeAlias = "str | os.PathLike[str] | ModelProto | onnx_ir.Model"


def opened(model: Any) -> tuple[ModelFile, Callable[[ModelFile], Any]]:
    """The model, with a function that gives the kind back that came in."""
    if isinstance(model, ModelFile):
        return model, ModelFile.whole
    if isinstance(model, str | os.PathLike):
        return open_model(os.fspath(model)), ModelFile.whole
    if isinstance(model, ModelProto):
        return ModelFile(model, path=None), lambda file: file.model
    if type(model).__module__.partition(".")[0] == "onnx_ir":
        import onnx_ir

        return ModelFile(onnx_ir.to_proto(model), path=None), lambda file: onnx_ir.from_proto(file.model)
    raise TypeError(f"a model is a path, an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}")


def reader(file: ModelFile) -> Callable[[TensorProto], TensorProto]:
    """Gives tensors with their data; that of a model without a file lies where the process works, as onnx has it."""
    return (file if file.base is not None else dataclasses.replace(file, base=Path())).tensor


def imported(model: ModelProto) -> dict[str, int]:
    """The opsets that a model imports, by domain; a model of the time before imports has opset 1."""
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = schemas.normal(entry.domain)
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise ModelFileError(
                f"the model imports {domain or 'ai.onnx'} twice, as {opsets[domain]} and as {entry.version}"
            )
    return opsets or {"": 1}


def count_nodes(model: ModelProto) -> int:
    """The nodes of a model, those of subgraphs and functions included."""
    return sum(len(graph.node) for top in (model.graph, *model.functions) for graph in graphs_in(top))


def targets_of(opset: int | Mapping[str, int], opsets: Mapping[str, int]) -> dict[str, int]:
    """The opset to reach of each domain that the model imports or that is asked for. Raises ValueError for no opset."""
    wanted = opset if isinstance(opset, Mapping) else {"": opset}
    targets = {}
    for domain, version in wanted.items():
        domain = schemas.normal(domain)
        if domain not in schemas.domains():
            raise ValueError(f"onnx {onnx.__version__} knows no domain '{domain}'")
        if isinstance(version, bool) or not isinstance(version, numbers.Integral):
            raise ValueError(f"an opset is a whole number, not {version!r}")
        if domain in targets:
            raise ValueError(f"the opset of {domain or 'ai.onnx'} is given twice: {targets[domain]} and {version}")
        if not 1 <= version <= schemas.newest(domain):
            raise ValueError(
                f"there is no opset {version} of {domain or 'ai.onnx'}: onnx {onnx.__version__} knows 1 to "
                f"{schemas.newest(domain)}"
            )
        targets[domain] = int(version)
    # Older runtimes refuse a file for a newer ai.onnx.ml than their release had, even if it is merely imported. Newer
    # ones read older versions, and a step up may refuse (a LabelEncoder with a key twice) or round (tree ensembles).
    if irversion.ML in opsets and irversion.ML not in targets and targets.get("", opsets.get("")) != opsets.get(""):
        targets[irversion.ML] = min(opsets[irversion.ML], irversion.ml_of_opset(targets[""]))
    return targets


def engine_on(
    original: Model,
    targets: Mapping[str, int],
    ir_version,
    selection: Selection = NOTHING,
    bodies: Bodies | None = None,
    *,
    inline_all: bool = False,
    kind: Callable[..., Engine] = Engine,
) -> Engine:
    """The engine after its run on a copy of the model, its `work`: what a conversion and its dry run have in common."""
    model, opsets = original.proto, original.opsets
    moves = any(opsets.get(domain) != version for domain, version in targets.items())
    goals = {**opsets, **targets}
    goal = goals.get("") or (irversion.opset_of_ml(goals[irversion.ML]) if irversion.ML in goals else None)
    ir_after = irversion.chosen(model.ir_version, goal if moves else None, ir_version)
    work = ModelProto()
    work.CopyFrom(model)
    changes = moves or ir_after != model.ir_version
    old_reader = changes and bool(model.functions) and ir_after < irversion.FUNCTIONS and ir_version != "keep"
    return legalize(
        original,
        work,
        targets,
        ir_version=ir_after,
        expand=selection,
        inline_all=inline_all or old_reader,
        bodies=bodies,
        kind=kind,
    )
