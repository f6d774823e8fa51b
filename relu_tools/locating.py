"""Where two whole models part: the first of the values that both name alike and compute differently."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .compare import DIFFERENT, Bound, Figures, compare
from .modelfile import ModelFile, open_model
from .report import qualified
from .writing import write_model

# For the values that one run hands out, of both models together; more are looked at in several runs.
MOST_BYTES = 1 << 29


@dataclasses.dataclass(frozen=True)
class Producer:
    """The node that makes a value; `inputs` are the names that it takes."""

    op: str
    node: str
    inputs: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.op}{f' {self.node!r}' if self.node else ''} of {', '.join(filter(None, self.inputs)) or 'nothing'}"
        )


@dataclasses.dataclass(frozen=True)
class Located:
    """The first value at which two models part, in the order of the form before, and `what` inputs show it.

    `before` and `after` make it. `figures` say how far apart it is. `runs` counts how often each form was run.
    """

    value: str
    before: Producer
    after: Producer
    figures: Figures
    what: str
    runs: int

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Located:
        producers = {
            side: Producer(**{**fields[side], "inputs": tuple(fields[side]["inputs"])}) for side in ("before", "after")
        }
        return cls(**{**fields, **producers, "figures": Figures(**fields["figures"])})

    def __str__(self) -> str:
        figures = self.figures
        return (
            f"A and B part at {self.value}: {self.before} in A, {self.after} in B; on {self.what} "
            f"{figures.differing} of {figures.elements} elements differ, the first {figures.problem}"
        )


def locate(
    before: Any,
    after: Any,
    what: str,
    feeds: Mapping[str, Any],
    other: Mapping[str, Any],
    bound: Bound,
    folder: Path,
) -> Located | None:
    """Run the forms of `judging` on inputs that show a difference, and look at the values on the way.

    `feeds` are those of the form before and `other` those of the one after. None where no common value differs.
    """
    names = common_values(before.model.graph, after.model.graph)
    sides = [(before, feeds, "before"), (after, other, "after")]
    types = [value_types(form.model, values) for form, values, _ in sides]

    def differ(chosen: Sequence[str]) -> dict[str, Figures]:
        results = []
        for (form, values, side), known in zip(sides, types, strict=True):
            model, path = exposed(form.model, form.path, chosen, known, folder / f"{side}.exposed.onnx")
            open_form = dataclasses.replace(form, model=model, path=path, outputs=list(chosen))
            results.append(open_form.run(values)[1])
        return {name: compare(name, a, b, bound) for name, a, b in zip(chosen, *results, strict=True)}

    found = first_apart(names, byte_sizes(names, types[0]), differ, MOST_BYTES // 2)
    if found is None:
        return None
    value, figures, runs = found
    return Located(value, producer(before.model.graph, value), producer(after.model.graph, value), figures, what, runs)


def common_values(before: onnx.GraphProto, after: onnx.GraphProto) -> list[str]:
    """The names of what nodes make in both graphs, in the order of the first."""
    there = {name for node in after.node for name in node.output}
    return [name for node in before.node for name in node.output if name and name in there]


def producer(graph: onnx.GraphProto, value: str) -> Producer:
    """Raises StopIteration where no node of the graph makes it."""
    node = next(node for node in graph.node if value in node.output)
    return Producer(qualified(node.domain, node.op_type), node.name, tuple(node.input))


def first_apart(
    names: Sequence[str],
    sizes: Mapping[str, int],
    differ: Callable[[Sequence[str]], Mapping[str, Figures]],
    most: int = MOST_BYTES,
) -> tuple[str, Figures, int] | None:
    """The first of `names` that differs, its figures, and the number of runs; None where none does.

    `differ` runs the models and returns figures of the names that it is given; `sizes` are in bytes. Where all of
    them take more than `most`, some that lie evenly apart are looked at, then those before the first that differs.
    """
    equal, apart, runs = -1, len(names), 0
    found: tuple[str, Figures] | None = None
    while equal + 1 < apart:
        chosen = _spread(range(equal + 1, apart), [sizes[name] for name in names], most, with_last=found is None)
        figures = differ([names[i] for i in chosen])
        runs += 1
        for i in chosen:
            if figures[names[i]].verdict == DIFFERENT:
                apart, found = i, (names[i], figures[names[i]])
                break
            equal = i
    return (*found, runs) if found else None


def _spread(candidates: range, sizes: Sequence[int], most: int, *, with_last: bool) -> list[int]:
    """As many candidates as fit, evenly apart; one at least."""
    all_of_them = sum(sizes[i] for i in candidates)
    count = len(candidates) if all_of_them <= most else max(1, len(candidates) * most // all_of_them)
    while True:
        parts = count if with_last or count == len(candidates) else count + 1
        chosen = [candidates[max(0, len(candidates) * (i + 1) // parts - 1)] for i in range(count)]
        if count == 1 or sum(sizes[i] for i in chosen) <= most:
            return chosen
        count -= 1


def exposed(
    model: onnx.ModelProto, path: str | None, names: Sequence[str], types: Mapping[str, onnx.TypeProto], target: Path
) -> tuple[onnx.ModelProto, str | None]:
    """The model with these values as its outputs, and the file that it was written to where it came from one."""
    file = open_model(path) if path else ModelFile(model)
    changed = onnx.ModelProto()
    changed.CopyFrom(file.model)
    del changed.graph.output[:]
    for name in names:
        output = changed.graph.output.add(name=name)
        if name in types:
            output.type.CopyFrom(types[name])
    if path is None:
        return changed, None
    write_model(dataclasses.replace(file, content=changed), target, overwrite=True)
    return changed, str(target)


def value_types(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, onnx.TypeProto]:
    """Types of the values of a graph, as far as they can be inferred; sizes are those that `feeds` lead to."""
    told = onnx.ModelProto()
    told.CopyFrom(model)
    for info in told.graph.input:
        if info.name in feeds and info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
            info.type.tensor_type.shape.SetInParent()
            for size in np.shape(feeds[info.name]):
                info.type.tensor_type.shape.dim.add(dim_value=size)
    # What was declared may hold names of dimensions, which are now numbers.
    del told.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(told, data_prop=True)
    except Exception:  # inference raises whatever an operator's own code raises
        return {}
    values: Iterator[onnx.ValueInfoProto] = itertools.chain(inferred.graph.value_info, inferred.graph.output)
    return {value.name: value.type for value in values if value.type.WhichOneof("value")}


def byte_sizes(names: Sequence[str], types: Mapping[str, onnx.TypeProto]) -> dict[str, int]:
    """In memory; a value of unknown size counts like the largest one that is known."""
    sizes = {}
    for name in names:
        tensor = types[name].tensor_type if name in types else onnx.TypeProto.Tensor()
        known = all(dim.HasField("dim_value") for dim in tensor.shape.dim)
        if tensor.elem_type and tensor.HasField("shape") and known:
            width = 16 if tensor.elem_type == onnx.TensorProto.STRING else _width(tensor.elem_type)
            sizes[name] = width * math.prod(dim.dim_value for dim in tensor.shape.dim)
    largest = max(sizes.values(), default=0)
    return {name: sizes.get(name, largest) for name in names}


def _width(element: int) -> int:
    return onnx.helper.tensor_dtype_to_np_dtype(element).itemsize
