"""Run two forms of a model, or of each rewritten node, on the same inputs and say how far apart they are."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from . import external, textformats
from . import inputs as given_inputs
from .compare import BIT_EXACT, DIFFERENT, NOT_VERIFIED, WITHIN_ROUNDING, Figures, worst
from .locating import Located
from .opening import AnyModel, opened
from .report import ModelFileError
from .runners import run_jobs
from .writing import write_model

# The newest IR that the oldest supported onnx and onnxruntime both read; it holds every element type of theirs.
_IR_VERSION = 10


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """One node (or a few) against its replacement.

    Opsets are by domain, "" for ai.onnx. `inputs` are the free names of both sides; their dimensions may be
    unknown and their shape missing. `constants` are inputs whose value takes part as it is. `outputs` are
    compared; a type may be empty. `accuracy` is what the report claims: "exact", "rounding" or "body".
    `functions` are model-local functions that `before` calls.
    """

    name: str
    before: Sequence[onnx.NodeProto]
    before_opsets: Mapping[str, int]
    after: Sequence[onnx.NodeProto]
    after_opsets: Mapping[str, int]
    inputs: Mapping[str, onnx.TypeProto]
    constants: Mapping[str, onnx.TensorProto]
    outputs: Mapping[str, onnx.TypeProto]
    accuracy: str
    functions: Sequence[onnx.FunctionProto] = ()


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Sets of inputs that were run: `what` they are, how many, and of what type and shape each input by its name."""

    what: str
    sets: int
    inputs: dict[str, str]


@dataclasses.dataclass
class Verification:
    """What running both forms showed; true where they are equal.

    `verdict` is "bit-exact", "within rounding", "different" or "not verified"; `figures` holds the worst of each
    output; `judges` ran the form before and the one after; `runs` counts the sets of inputs on which both gave a
    result, `seed` drew them (None where they were given), and `drawn` says what they were; `reason` says why it was not
    verified, or where the forms differ. `located` is where two whole models part, if that was asked for. `parts` are
    the verifications of the single rewrites, by name.
    """

    verdict: str
    figures: list[Figures] = dataclasses.field(default_factory=list)
    judges: tuple[str, str] = ("", "")
    seed: int | None = 0
    runs: int = 0
    reason: str = ""
    parts: list[tuple[str, Verification]] = dataclasses.field(default_factory=list)
    drawn: list[Drawn] = dataclasses.field(default_factory=list)
    located: Located | None = None

    def __bool__(self) -> bool:
        return self.verdict in (BIT_EXACT, WITHIN_ROUNDING)

    def to_dict(self) -> dict[str, Any]:
        """As plain dictionaries and lists, ready for `json.dumps`."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["equal"] = bool(self)
        for key in ("figures", "drawn"):
            fields[key] = [dataclasses.asdict(entry) for entry in fields[key]]
        fields["located"] = dataclasses.asdict(self.located) if self.located else None
        fields["judges"] = list(self.judges)
        fields["parts"] = [{"name": name, **part.to_dict()} for name, part in self.parts]
        return fields

    def __str__(self) -> str:
        if self.parts:
            return self._parts_sentence()
        text = self.verdict
        if self.runs:
            before, after = self.judges
            by = before if before == after else f"{before} before and {after} after"
            text += f" on {self.runs} sets of inputs, run by {by}"
            text += f" (seed {self.seed})" if self.seed is not None else ""
        apart = [f for f in self.figures if f.verdict != BIT_EXACT and not f.problem]
        if apart:
            text += "; " + ", ".join(
                f"{f.name}: at most {f.max_abs:.3g} absolute, {f.max_rel:.3g} relative, {f.max_ulp} ULP" for f in apart
            )
        return text + (f": {self.reason}" if self.reason else "")

    def _parts_sentence(self) -> str:
        counts = {verdict: 0 for verdict in (BIT_EXACT, WITHIN_ROUNDING, DIFFERENT, NOT_VERIFIED)}
        for _, part in self.parts:
            counts[part.verdict] += 1
        text = f"{self.verdict}: of {len(self.parts)} rewrites " + ", ".join(
            f"{count} {verdict}" for verdict, count in counts.items() if count
        )
        bad = [f"{name}: {part}" for name, part in self.parts if not part]
        return "\n  ".join([text, *bad[:5], *([f"and {len(bad) - 5} more"] if len(bad) > 5 else [])])


def verify(
    before: AnyModel,
    after: AnyModel,
    *,
    seed: int = 0,
    inputs: Sequence[given_inputs.Given] | None = None,
    locate: bool = False,
    seconds: float = 120,
    memory_mb: int | None = None,
) -> Verification:
    """Compare two whole models on random inputs and special values, or on `inputs` where those are given.

    A model is a path, a ModelProto or an onnx_ir.Model. A set of `inputs` has values by name, or is an .npz file or a
    folder with input_0.pb and so on. They run in a child process that may take `seconds`, and `memory_mb` beside what
    it has loaded before it sees them (all of the machine's if None). Inputs and outputs are matched by name, or in
    order where the names differ. `locate` finds the first value at which models that differ part.
    Raises `ModelFileError`, also for inputs that the models do not take.
    """
    if isinstance(inputs, str | os.PathLike | Mapping):
        raise TypeError("inputs are a list of sets, such as ['samples.npz']")
    if inputs is not None and not inputs:
        raise ValueError("inputs hold no set to run")
    with tempfile.TemporaryDirectory(prefix="relu_tools") as temporary:
        folder = Path(temporary)
        graph, path = on_disk(before, folder / "before" / "model.onnx")
        _, other_path = on_disk(after, folder / "after" / "model.onnx")
        job: dict[str, Any] = {
            "before": path,
            "after": other_path,
            "accuracy": "model",
            "seed": seed,
            "seconds": seconds * 0.6,
            "locate": locate,
        }
        if inputs is not None:
            sets = enumerate(_checked(given, number, graph) for number, given in enumerate(inputs))
            job["inputs"] = [given_inputs.save(values, folder / f"inputs{number}") for number, values in sets]
        (answer,) = run_jobs([job], folder, seconds, memory_mb)
        if "parting" in answer:
            # With limits of its own, so that the verdict stands whatever comes of it.
            (second,) = run_jobs([{**job, "parting": answer["parting"]}], folder, seconds, memory_mb)
            if "error" in second:
                answer["reason"] += f"; where they part was not found: {second['error']}"
            answer["located"] = second.get("located")
    if "unreadable" in answer:
        raise ModelFileError(answer["unreadable"])
    return _from_answer(answer, seed if inputs is None else None)


def _checked(given: given_inputs.Given, number: int, graph: onnx.GraphProto) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return given_inputs.check(given, graph, f"the given inputs {number}")
    own = {tensor.name for tensor in graph.initializer}
    values = given_inputs.read(given, {value.name: value.type for value in graph.input if value.name not in own})
    return given_inputs.check(values, graph, str(given))


def verify_rewrites(
    rewrites: Sequence[Rewrite],
    *,
    seed: int = 0,
    seconds: float = 60,
    memory_mb: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Each rewrite alone, equal ones once; each may take `seconds`, in one child process.

    The verdict is "different" if any is, else "not verified" if any could not be, else the worst. `progress` is
    called with the number done and the number of all.
    """
    kinds: dict[str, int] = {}
    jobs: list[dict[str, Any]] = []
    numbers = []
    with tempfile.TemporaryDirectory(prefix="relu_tools") as temporary:
        folder = Path(temporary)
        for rewrite in rewrites:
            before, known = _as_model(rewrite, rewrite.before, rewrite.before_opsets, rewrite.functions, {})
            after, _ = _as_model(rewrite, rewrite.after, rewrite.after_opsets, (), known)
            forms = [before.SerializeToString(deterministic=True), after.SerializeToString(deterministic=True)]
            key = hashlib.sha256(b"\0".join([*forms, rewrite.accuracy.encode()])).hexdigest()
            number = kinds.setdefault(key, len(jobs))
            numbers.append(number)
            if number < len(jobs):
                continue
            for side, form in zip(("before", "after"), forms, strict=True):
                (folder / f"{number}.{side}.onnx").write_bytes(form)
            jobs.append(
                {
                    "before": f"{number}.before.onnx",
                    "after": f"{number}.after.onnx",
                    "accuracy": rewrite.accuracy,
                    "seed": seed,
                    "seconds": seconds * 0.6,
                    "names": list(rewrite.outputs),
                }
            )
        answers = run_jobs(jobs, folder, seconds, memory_mb, progress)
    parts = [(r.name, _part(r, answers[n], seed)) for r, n in zip(rewrites, numbers, strict=True)]
    return _overall(parts, seed)


def _overall(parts: list[tuple[str, Verification]], seed: int) -> Verification:
    verdicts = {part.verdict for _, part in parts}
    for verdict in (DIFFERENT, NOT_VERIFIED):
        if verdict in verdicts:
            name, first = next((name, part) for name, part in parts if part.verdict == verdict)
            return Verification(verdict, seed=seed, reason=f"{name}: {first.reason}", parts=parts, runs=_runs(parts))
    return Verification(worst(BIT_EXACT, *verdicts), seed=seed, parts=parts, runs=_runs(parts))


def _runs(parts: list[tuple[str, Verification]]) -> int:
    return sum(part.runs for _, part in parts)


def _part(rewrite: Rewrite, answer: dict[str, Any], seed: int) -> Verification:
    """An answer with the names of this rewrite, where that of an equal one was run."""
    part = _from_answer({**answer, "names": [name for name in rewrite.inputs if name not in rewrite.constants]}, seed)
    for figures, name in zip(part.figures, rewrite.outputs, strict=False):
        figures.name = name
    return part


def _from_answer(answer: dict[str, Any], seed: int | None) -> Verification:
    if "error" in answer:
        return Verification(NOT_VERIFIED, seed=seed, reason=answer["error"])
    return Verification(
        verdict=answer["verdict"],
        figures=[Figures(**fields) for fields in answer["figures"]],
        judges=tuple(answer["judges"]),
        seed=seed,
        runs=answer["runs"],
        reason=answer["reason"],
        drawn=[
            Drawn(entry["what"], entry["sets"], dict(zip(answer["names"], entry["inputs"], strict=True)))
            for entry in answer.get("drawn", ())
        ],
        located=Located.from_dict(answer["located"]) if answer.get("located") else None,
    )


# From rewrites and files to models


def _as_model(
    rewrite: Rewrite,
    nodes: Sequence[onnx.NodeProto],
    opsets: Mapping[str, int],
    functions: Sequence[onnx.FunctionProto],
    other_side: Mapping[str, onnx.TypeProto],
) -> tuple[onnx.ModelProto, dict[str, onnx.TypeProto]]:
    """One side as a model, and the types of its outputs.

    Names in it say nothing but their order, so that equal rewrites are equal bytes. `other_side` is what the
    other one gave as types, for operators that cannot be inferred.
    """
    names: dict[str, str] = {"": ""}
    dims: dict[str, str] = {}
    graph = onnx.GraphProto(name="rewrite")
    for name, type_ in rewrite.inputs.items():
        names[name] = f"i{len(names)}"
        if name not in rewrite.constants:
            graph.input.add(name=names[name], type=_canonical_type(type_, dims))
    for name, tensor in rewrite.constants.items():
        names.setdefault(name, f"i{len(names)}")
        copy = graph.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = names[name]
        copy.doc_string = ""
    for name in rewrite.outputs:
        names.setdefault(name, f"o{len(names)}")
    graph.node.extend(_renamed(node, names) for node in nodes)
    model = onnx.ModelProto(ir_version=_IR_VERSION, graph=graph)
    domains = {**{function.domain: 1 for function in functions}, **opsets}
    for domain, version in sorted(domains.items()):
        model.opset_import.add(domain=domain, version=version)
    model.functions.extend(functions)
    # The inferred type comes first: a declared one would hide that this side gives another.
    types = {**other_side, **_output_types(model, [names[name] for name in rewrite.outputs])}
    for name, declared in rewrite.outputs.items():
        type_ = types.setdefault(names[name], _canonical_type(declared, dims))
        model.graph.output.add(name=names[name], type=type_)
    return model, types


def _output_types(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, onnx.TypeProto]:
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        probe = onnx.shape_inference.infer_shapes(probe)
    except Exception:  # the child's check of the model says what is wrong with it
        return {}
    known = {v.name: v.type for v in [*probe.graph.value_info, *probe.graph.input, *probe.graph.output]}
    return {name: known[name] for name in names if name in known and known[name].WhichOneof("value")}


def _canonical_type(type_: onnx.TypeProto, dims: dict[str, str]) -> onnx.TypeProto:
    copy = onnx.TypeProto()
    copy.CopyFrom(type_)
    copy.denotation = ""
    for dim in copy.tensor_type.shape.dim if copy.HasField("tensor_type") else ():
        dim.denotation = ""
        if dim.dim_param:
            dim.dim_param = dims.setdefault(dim.dim_param, f"d{len(dims)}")
    return copy


def _renamed(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = copy.doc_string = ""
    del copy.metadata_props[:]
    copy.input[:] = [names.setdefault(name, f"v{len(names)}") for name in node.input]
    for attribute in copy.attribute:
        attribute.doc_string = ""
        for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
            _rename_graph(graph, names)
    copy.output[:] = [names.setdefault(name, f"v{len(names)}") for name in node.output]
    return copy


def _rename_graph(graph: onnx.GraphProto, outer: dict[str, str]) -> None:
    """Names of the subgraph's own shadow nothing: the specification gives each name one meaning in all graphs."""
    for value in [*graph.input, *graph.initializer]:
        value.name = outer.setdefault(value.name, f"v{len(outer)}")
        value.doc_string = ""
    for sparse in graph.sparse_initializer:
        sparse.values.name = outer.setdefault(sparse.values.name, f"v{len(outer)}")
    nodes = [_renamed(node, outer) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        value.name = outer.setdefault(value.name, f"v{len(outer)}")
    del graph.value_info[:], graph.quantization_annotation[:], graph.metadata_props[:]
    graph.name, graph.doc_string = "g", ""


def on_disk(model: Any, target: Path) -> tuple[onnx.GraphProto, str]:
    """The graph, perhaps without its weights, and a binary file with the model: its own, or else `target`.

    Raises ModelFileError where data in other files is missing.
    """
    file, _ = opened(model)
    base = file.base if file.base is not None else Path()
    external.check_data(file.model, base)
    file = dataclasses.replace(file, base=base)
    if file.path is not None and file.path.suffix.lower() not in textformats.FORMATS and file.is_unchanged():
        return file.model.graph, str(file.path.resolve())
    target.parent.mkdir()
    if file.origin is None and file.model.ByteSize() >= 1 << 31:
        copy = onnx.ModelProto()
        copy.CopyFrom(file.model)
        onnx.save(copy, target, save_as_external_data=True, location=target.name + ".data")
    else:
        write_model(file, target)
    return file.model.graph, str(target)
