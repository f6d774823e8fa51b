"""One side of a comparison: its model, the judges that it has left, and what can be told of two without a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from . import external, inputs, wire
from .attribute_values import counted_from_the_back, undefined_values
from .compare import DIFFERENT, NOT_VERIFIED
from .modelfile import open_model
from .references import bind
from .runners import CannotRun, judges, opset_of
from .trust import onnxruntime_misreads


@dataclasses.dataclass
class Form:
    """One side: its model without external weights, its file if there are any, and the judges left to it."""

    model: onnx.ModelProto
    path: str | None
    inputs: dict[str, onnx.TypeProto]
    outputs: list[str]
    invalid: str = ""
    undefined: str = ""
    from_the_back: str = ""
    refusals: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.makers = list(judges(self.model, self.path))
        self.misread = onnxruntime_misreads(self.model) if len(self.makers) > 1 else ""
        if self.misread:
            self.makers = self.makers[-1:]
            self.refusals.append(f"onnxruntime is not asked: {self.misread}")
        self.made: dict[int, Any] = {}
        # Whether a judge that can run the model did not take the inputs of the last run.
        self.rejected = False

    def ask_reference_alone(self) -> None:
        """Leave onnxruntime out, if the reference evaluator can run the model."""
        if self.judge(len(self.makers) - 1) is not None:
            self.makers, self.made = self.makers[-1:], {0: self.made[len(self.makers) - 1]}

    def judge(self, number: int) -> Any:
        """The judge of that number, made once; None where it cannot run the model."""
        if number not in self.made:
            try:
                self.made[number] = self.makers[number]()
            except CannotRun as error:
                self.made[number] = None
                self.refusals.append(str(error))
            except MemoryError:
                raise
            except Exception as error:
                self.made[number] = None
                self.refusals.append(f"{type(error).__name__}: {error}")
        return self.made[number]

    def run(self, feeds: Mapping[str, Any], reference_only: bool = False) -> tuple[str, list[Any]]:
        """The judge's name and the outputs in order. Raises `Failed` where no judge gives a result."""
        errors = []
        self.rejected = False
        for number in range(len(self.makers) - 1 if reference_only else 0, len(self.makers)):
            judge = self.judge(number)
            if judge is None:
                continue
            try:
                results = judge.run(feeds)
            except CannotRun as error:
                self.made[number] = None
                self.refusals.append(str(error))
                continue
            except MemoryError:
                raise
            except Exception as error:
                self.rejected = True
                errors.append(f"{judge.name}: {' '.join(str(error).split())[:300]}")
                continue
            return judge.name, [results[name] for name in self.outputs]
        raise Failed(errors[0] if errors else "")


class Failed(Exception):
    """No judge gave a result; empty if none could even try."""


# In bytes; a judge takes the weights of a larger one from the file itself.
_LARGE_FILE = 1 << 26


def load_form(path: Path, attributes: dict[str, onnx.AttributeProto]) -> Form:
    """`attributes` are those of the function that the graph is a part of, if it is of any."""
    large = path.stat().st_size > _LARGE_FILE
    model = open_model(path).model if large else wire.parse(onnx.ModelProto, path.read_bytes())
    if not model.HasField("graph"):
        raise wire.WireError("it holds no graph")
    bind(model, attributes)
    by_path = large or bool(external.external_tensors(model))
    own = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    taken = {v.name: v.type for v in model.graph.input if v.name not in own}
    form = Form(model, str(path) if by_path else None, taken, [v.name for v in model.graph.output])
    try:
        if by_path:
            onnx.checker.check_model(str(path), full_check=True)
        else:
            _check(model)
        scopes = [(model.graph.node, model.opset_import), *((f.node, f.opset_import) for f in model.functions)]
        scoped = [(nodes, opset_of(imports)) for nodes, imports in scopes]
        form.undefined = next(filter(None, (undefined_values(*scope) for scope in scoped)), "")
        form.from_the_back = next(filter(None, (counted_from_the_back(*scope) for scope in scoped)), "")
    except MemoryError:
        raise
    except Exception as error:
        form.invalid = " ".join(str(error).split())[:300]
    return form


def _check(model: onnx.ModelProto) -> None:
    """The full check of onnx, but for its demand that inputs and outputs have a shape."""
    shaped = onnx.ModelProto()
    shaped.CopyFrom(model)
    for value in [*shaped.graph.input, *shaped.graph.output]:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(shaped)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def misfit(before: Form, after: Form) -> tuple[str, str] | None:
    """A verdict that needs no run."""
    if after.invalid and not before.invalid:
        return DIFFERENT, f"the form after is not valid: {after.invalid}"
    if after.invalid != before.invalid and after.invalid:
        return NOT_VERIFIED, f"neither form is valid: {before.invalid}; {after.invalid}"
    undefined = (after.undefined and not before.undefined) or (after.from_the_back and not before.from_the_back)
    if undefined:
        return DIFFERENT, f"the form after is not valid: {after.undefined or after.from_the_back}"
    if before.undefined and not after.undefined:
        return NOT_VERIFIED, f"the form before is not valid: {before.undefined}"
    if len(before.outputs) != len(after.outputs):
        count = f"{len(before.outputs)} output{'s' * (len(before.outputs) != 1)}"
        return DIFFERENT, f"the form before has {count}, the form after has {len(after.outputs)}"
    if len(before.inputs) != len(after.inputs):
        return DIFFERENT, f"inputs differ: {', '.join(sorted(set(before.inputs) ^ set(after.inputs)))}"
    narrower = _narrower_input(before, after)
    if narrower:
        return DIFFERENT, narrower
    return None


def _narrower_input(before: Form, after: Form) -> str:
    """A sentence about an input that the form before takes and the one after does not, or ""."""
    same_names = before.inputs.keys() == after.inputs.keys()
    names = zip(before.inputs, before.inputs if same_names else after.inputs, strict=True)
    for name, other in names:
        one, two = before.inputs[name], after.inputs[other]
        if not (one.HasField("tensor_type") and two.HasField("tensor_type")):
            continue
        wide, narrow = one.tensor_type, two.tensor_type
        dims = list(zip(wide.shape.dim, narrow.shape.dim, strict=False))
        ranked = wide.HasField("shape") and narrow.HasField("shape")
        if (
            wide.elem_type != narrow.elem_type
            or (ranked and len(wide.shape.dim) != len(narrow.shape.dim))
            or any(b.dim_value > 0 and a.dim_value != b.dim_value for a, b in dims)
        ):
            return f"input {name} is {inputs.described_type(one)} before and {inputs.described_type(two)} after"
    return ""


def contradicts(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> bool:
    """Whether inputs of unknown rank were drawn with one that the types declared inside of a model rule out."""
    open_ = [info for info in model.graph.input if info.name in feeds and not info.type.tensor_type.HasField("shape")]
    if not any(info.type.HasField("tensor_type") for info in open_):
        return False
    told = onnx.ModelProto()
    told.CopyFrom(model)
    for info in told.graph.input:
        if info.name in feeds and info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
            for dim in np.shape(feeds[info.name]):
                info.type.tensor_type.shape.dim.add(dim_value=dim)
    try:
        onnx.shape_inference.infer_shapes(told, check_type=True, strict_mode=True, data_prop=True)
    except Exception:  # inference raises whatever the operator's own code raises
        return True
    return False
