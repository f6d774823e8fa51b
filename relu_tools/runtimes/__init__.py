"""What runtimes run, as data: opsets, IR version, and where known the operators with versions and element types.

A runtime's release is a TOML file, of this folder or the user's own:

    name = "my_npu"
    version = "2.1"
    source = "its manual, chapter 7"
    ir_version = 7
    [opsets]
    "ai.onnx" = [7, 13]
    [operators]
    Conv = "float, float16"
    Resize = ["11: float", "13: float, int8"]
    Reshape = "*"

Without a table of operators it runs all that its opsets have. An entry tells versions of the operator, each by the
opset that brought it, then a colon and element types; either can be left out, and "*" is anything. Types are those of
the operator's first type variable, or of several, named as in the schema: "13: T = float, int8; Tind = not int32",
where "not" begins those that the schema has and the runtime lacks.
A table [attributes] tells which values of an attribute it takes, where not all: "Resize.mode" = ["nearest", "linear"].
Three keys tell what it does where it has no kernel: `expands`, that it puts function bodies in the place of operators;
`through`, such as {float16 = "float"}, that it casts what enters of one type to another, and back; `functions`, that it
knows model-local functions (by default where its IR version has them).
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import NodeProto, helper

from relu_tools import irversion, schemas
from relu_tools.report import qualified
from relu_tools.runtimes.names import misnomer

FOLDER = Path(__file__).parent
ANY = (1, 1 << 30)


class RuntimeDataError(ValueError):
    """A runtime that nobody knows, or data that cannot be read; one sentence."""


@dataclasses.dataclass(frozen=True)
class Types:
    """A set of types, or all but those."""

    named: frozenset[str]
    all_but: bool = False

    def __contains__(self, type_: str) -> bool:
        return (type_ in self.named) != self.all_but


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An operator's versions, as ranges, and the types that each type variable may have; "" is the first variable."""

    versions: tuple[tuple[int, int], ...]
    types: Mapping[str, Types]

    def has_version(self, version: schemas.Version) -> bool:
        return any(version.since <= high and low <= version.last for low, high in self.versions)


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A release of a runtime. `operators` is None where all that the opsets have are run."""

    name: str
    version: str
    source: str
    date: str
    ir_version: int | None
    opsets: Mapping[str, tuple[int, int]]
    operators: Mapping[str, tuple[Kernel, ...]] | None
    attributes: Mapping[str, Mapping[str, Sequence]]
    expands: bool
    through: Mapping[str, str]
    functions: bool

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def objection(self, node: NodeProto, version: schemas.Version, text: Callable[[str], str | None]) -> str:
        """Why there is no kernel for a node of a version, in a clause; empty where there is one.

        `text` tells the type of a value as schemas write it; a type that it does not know is no objection.
        """
        name = qualified(version.domain, version.op)
        for attribute, admitted in self.attributes.get(name, {}).items():
            value = schemas.bind(node, version)[1].get(attribute)
            if value is not None and value not in admitted:
                return f"it takes {attribute} = {' or '.join(map(str, admitted))}, not {value}"
        if self.operators is None:
            return ""
        kernels = self.operators.get(name)
        if kernels is None:
            return "it does not have the operator"
        kernels = tuple(kernel for kernel in kernels if kernel.has_version(version))
        if not kernels:
            return f"it does not have version {version.since} of the operator"
        types = _types(node, version, text)
        entering = {text(name) for name in node.input if name}
        cast = {var: self.through.get(t, t) if t in entering else t for var, t in types.items()}
        if any(_takes(kernel, types) or _takes(kernel, cast) for kernel in kernels):
            return ""
        told = ", ".join(f"{var} = {_short(type_)}" for var, type_ in types.items() if var)
        return f"it has no kernel for {told}" if told else "it has no kernel for its types"

    def runs_unborn(self, domain: str, op: str, opset: int) -> bool:
        """Whether there is a kernel for an operator from before it had a schema."""
        birth = schemas.history(domain, op)[0].since
        kernels = (self.operators or {}).get(qualified(domain, op), ())
        return any(low <= opset and high < birth for kernel in kernels for low, high in kernel.versions)

    def admitted(self, version: schemas.Version, var: str) -> frozenset[str]:
        """The types that some kernel takes for a type variable."""
        of_schema = next((f.types for f in (*version.inputs, *version.outputs) if f.var == var), frozenset())
        if self.operators is None:
            return of_schema
        found: set[str] = set()
        for kernel in self.operators.get(qualified(version.domain, version.op), ()):
            if kernel.has_version(version):
                types = kernel.types.get(var) or (kernel.types.get("") if var == _first_var(version) else None)
                found.update(t for t in of_schema if types is None or t in types or self.through.get(t, t) in types)
        return frozenset(found)


def _first_var(version: schemas.Version) -> str:
    formals = version.inputs or version.outputs
    return formals[0].var if formals else ""


def _types(node: NodeProto, version: schemas.Version, text: Callable[[str], str | None]) -> dict[str, str]:
    """The types of a node's type variables, and by formal names; the first variable also as ""."""
    types: dict[str, str] = {}
    for names, formal_at in ((node.input, version.input), (node.output, version.output)):
        for k, name in enumerate(names):
            formal = formal_at(k)
            if formal is not None and name and len(formal.types) > 1 and (found := text(name)) is not None:
                types.setdefault(formal.var, found)
    first = _first_var(version)
    return {**types, "": types[first]} if first in types else types


def _takes(kernel: Kernel, types: Mapping[str, str]) -> bool:
    return all(types.get(var) is None or types[var] in admitted for var, admitted in kernel.types.items())


def _short(text: str) -> str:
    return text[7:-1] if text.startswith("tensor(") else text


# --- which there are -------------------------------------------------------------------------
def names() -> list[str]:
    """All runtimes that are known, as NAME==VERSION, releases of one in the order of their versions."""
    shipped = [path.stem.rsplit("-", 1) for path in FOLDER.glob("*.toml")]
    found = [*map(tuple, shipped), *(("onnx", row[0]) for row in helper.VERSION_TABLE)]
    return [f"{name}=={version}" for name, version in sorted(found, key=lambda pair: (pair[0], _order(pair[1])))]


def find(spec: str | os.PathLike[str] | Runtime) -> Runtime:
    """A runtime by name and release, "onnxruntime==1.10", by name alone (its newest), or by the path of a TOML file.

    Raises RuntimeDataError where there is none, or its data cannot be read.
    """
    if isinstance(spec, Runtime):
        return spec
    if not isinstance(spec, str | os.PathLike):
        raise TypeError(f"a runtime is a name such as 'onnxruntime==1.10' or a TOML file, not {spec!r}")
    spec = os.fspath(spec)
    if spec.endswith(".toml"):
        return load(Path(spec))
    name, given, wanted = spec.partition("==")
    releases = [n.partition("==")[2] for n in names() if n.partition("==")[0] == name]
    if not releases:
        known = ", ".join(dict.fromkeys(n.partition("==")[0] for n in names()))
        raise RuntimeDataError(f"there is no runtime '{name}'; known are {known}, and files that end in .toml")
    if given and not wanted:
        raise RuntimeDataError(f"'{spec}' names no release; known are {', '.join(releases)}; '{name}' is the newest")
    fitting = [r for r in releases if not wanted or f"{r}.".startswith(f"{wanted}.")]
    if not fitting:
        raise RuntimeDataError(f"nothing is known of {name} {wanted}; its known releases are {', '.join(releases)}")
    return _release(name, wanted if wanted in fitting else fitting[-1])


@functools.cache
def _release(name: str, version: str) -> Runtime:
    if name != "onnx":
        return load(FOLDER / f"{name}-{version}.toml")
    row = next(row for row in helper.VERSION_TABLE if row[0] == version)
    opsets = {"": (1, row[2]), irversion.ML: (1, row[3])}
    source = "onnx.helper.VERSION_TABLE"
    return Runtime(name, version, source, "", row[1], opsets, None, {}, False, {}, row[1] >= irversion.FUNCTIONS)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", version))


# --- reading ---------------------------------------------------------------------------------
def load(path: Path) -> Runtime:
    """The runtime that a TOML file describes. Raises RuntimeDataError with what is wrong in it."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RuntimeDataError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RuntimeDataError(f"{path} is not TOML: {error}") from None
    try:
        return _runtime(data, path.stem)
    except RuntimeDataError as error:
        raise RuntimeDataError(f"{path}: {error}") from None


_KEYS = {
    "name",
    "version",
    "source",
    "date",
    "ir_version",
    "opsets",
    "operators",
    "attributes",
    "expands",
    "through",
    "functions",
}


def _runtime(data: Mapping[str, Any], stem: str) -> Runtime:
    if unknown := sorted(set(data) - _KEYS):
        raise RuntimeDataError(f"there is no key '{unknown[0]}'; there are {', '.join(sorted(_KEYS))}")
    opsets = {schemas.normal(domain): _range(domain, value) for domain, value in _table(data, "opsets").items()}
    if not opsets:
        raise RuntimeDataError('it lacks [opsets], such as "ai.onnx" = [7, 13]')
    operators = None
    if "operators" in data:
        operators = {
            op.removeprefix("ai.onnx::"): tuple(_kernel(op, entry) for entry in _entries(op, entries))
            for op, entries in _table(data, "operators").items()
        }
    ir_version = _typed(data, "ir_version", int, None)
    attributes = _attributes(_table(data, "attributes"))
    variables = {op: {var for kernel in kernels for var in kernel.types} for op, kernels in (operators or {}).items()}
    if wrong := misnomer(variables, attributes, opsets):
        raise RuntimeDataError(wrong)
    return Runtime(
        name=_typed(data, "name", str, stem),
        version=_typed(data, "version", str, ""),
        source=_typed(data, "source", str, ""),
        date=str(data.get("date", "")),
        ir_version=ir_version,
        opsets=opsets,
        operators=operators,
        attributes=attributes,
        expands=_typed(data, "expands", bool, False),
        through={_full("through", a): _full("through", b) for a, b in _table(data, "through").items()},
        functions=_typed(data, "functions", bool, (ir_version or 0) >= irversion.FUNCTIONS),
    )


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return _typed(data, key, dict, {})


def _typed(data: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = data.get(key, default)
    if value is not default and type(value) is not kind:
        what = {int: "a whole number", str: "a string", bool: "true or false", dict: "a table"}[kind]
        raise RuntimeDataError(f"{key} is {what}, not {value!r}")
    return value


def _range(domain: str, value: Any) -> tuple[int, int]:
    pair = [value, value] if type(value) is int else value
    if not (
        isinstance(pair, list) and len(pair) == 2 and all(type(v) is int for v in pair) and 1 <= pair[0] <= pair[1]
    ):
        raise RuntimeDataError(f"the opsets of {domain} are the lowest and the highest, such as [7, 13], not {value!r}")
    return pair[0], pair[1]


def _attributes(table: Mapping[str, Any]) -> dict[str, dict[str, list]]:
    found: dict[str, dict[str, list]] = {}
    for name, values in table.items():
        op, dot, attribute = name.rpartition(".")
        if not dot or not isinstance(values, list):
            raise RuntimeDataError(f'[attributes] {name}: wanted is such as "Resize.mode" = ["nearest"]')
        found.setdefault(op.removeprefix("ai.onnx::"), {})[attribute] = values
    return found


def _entries(op: str, entries: Any) -> list[str]:
    found = [entries] if isinstance(entries, str) else entries
    if not (isinstance(found, list) and found and all(isinstance(entry, str) for entry in found)):
        raise RuntimeDataError(f'{op} is a string or several, such as ["7-12: float"], not {entries!r}')
    return found


def _kernel(op: str, entry: str) -> Kernel:
    versions, colon, types = (part.strip() for part in entry.partition(":"))
    if not colon and not re.match(r"[0-9*]", versions):
        versions, types = "*", versions
    return Kernel(_versions(op, versions), _type_sets(op, types))


def _versions(op: str, text: str) -> tuple[tuple[int, int], ...]:
    if text == "*":
        return (ANY,)
    found = [re.fullmatch("([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip()) for part in text.split(",")]
    if not all(found):
        raise RuntimeDataError(f"{op}: '{text}' are no versions; those are numbers or ranges such as 7-12, or *")
    return tuple((int(match[1]), int(match[2] or match[1])) for match in found if match)


def _type_sets(op: str, text: str) -> dict[str, Types]:
    sets = {}
    for part in text.split(";") if text not in ("", "*") else ():
        var, _, listed = part.strip().rpartition("=")
        listed, all_but = listed.strip(), listed.strip().startswith("not ")
        named = frozenset(_full(op, name) for name in _names_in(listed.removeprefix("not ")))
        sets[var.strip()] = Types(named, all_but)
    return sets


def _names_in(text: str) -> list[str]:
    """The parts between the commas that stand in no parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def _full(op: str, name: str) -> str:
    text = name if "(" in name else f"tensor({name})"
    if not re.fullmatch(_TYPE, text):
        raise RuntimeDataError(f"{op}: '{name}' is no element type; those are as in float, int64, seq(tensor(float))")
    return text


# A runtime may have types that the installed onnx does not know yet.
_ELEMENT = "(?:float|double|string|bool|(?:u?int|b?float|complex)[0-9][a-z0-9]*)"
_TYPE = rf"tensor\({_ELEMENT}\)|(?:seq|optional|map|sparse_tensor)\(.+\)"
