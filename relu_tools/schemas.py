"""The operators' versions as data: what each takes, how a node binds to it, and what it would object to.

Everything here comes from `onnx.defs`, read once per operator and when it is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import onnx
from onnx import AttributeProto, NodeProto, defs, helper

from relu_tools.report import RefusedError

# Operators that were in use before they had a schema, and the version that their nodes meant.
EXPERIMENTAL = {"LayerNormalization": 17, "ThresholdedRelu": 10}

# An optimization hint of opset 1 that never had a part in the result.
HINT = "consumed_inputs"


class Formal(NamedTuple):
    """A formal parameter: `types` are its admitted type strings, such as "tensor(float)"; `var` its type variable."""

    name: str
    var: str
    types: frozenset[str]
    optional: bool
    variadic: bool
    homogeneous: bool


class Attribute(NamedTuple):
    name: str
    type: int
    required: bool
    default: AttributeProto | None


@dataclasses.dataclass(frozen=True, eq=False)
class Version:
    """One version of an operator: its contract, and the first (`since`) and last opset at which it is in force."""

    domain: str
    op: str
    since: int
    last: int
    deprecated: bool
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    min_inputs: int
    max_outputs: int
    attributes: Mapping[str, Attribute]
    schema: defs.OpSchema = dataclasses.field(repr=False, compare=False)

    def input(self, index: int) -> Formal | None:
        """The formal parameter that the input at `index` binds to; the last one where it is variadic."""
        return _formal(self.inputs, index)

    def output(self, index: int) -> Formal | None:
        return _formal(self.outputs, index)

    @functools.cached_property
    def has_types_of_its_own(self) -> bool:
        """Whether an output has a type that no input binds."""
        bound = {formal.var for formal in self.inputs if not formal.optional}
        return any(formal.var not in bound or not formal.homogeneous for formal in self.outputs)

    @functools.cached_property
    def infers(self) -> bool:
        return self.schema.has_type_and_shape_inference_function

    @property
    def has_body(self) -> bool:
        return self.schema.has_function or self.schema.has_context_dependent_function


def _formal(formals: tuple[Formal, ...], index: int) -> Formal | None:
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and formals[-1].variadic else None


def normal(domain: str) -> str:
    """The default domain has two spellings; "" is the one used here."""
    return "" if domain == "ai.onnx" else domain


@functools.cache
def newest(domain: str = "") -> int:
    """The highest opset of a domain that the installed onnx knows."""
    return defs.C.schema_version_map().get(domain, (0, 0))[1]


@functools.cache
def domains() -> frozenset[str]:
    """The domains that the installed onnx has schemas for."""
    return frozenset(defs.C.schema_version_map())


@functools.cache
def history(domain: str, op: str) -> tuple[Version, ...]:
    """All versions of an operator, oldest first; empty where no schema knows it."""
    versions: list[Version] = []
    last = 1 << 30
    while last > 0:
        try:
            schema = defs.get_schema(op, last, domain)
        except defs.SchemaError:
            break
        versions.insert(0, _read(schema, last))
        last = schema.since_version - 1
    return tuple(versions)


@functools.cache
def names(domain: str) -> frozenset[str]:
    """The operators of a domain."""
    return frozenset(schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == domain)


def _read(schema: defs.OpSchema, last: int) -> Version:
    option = defs.OpSchema.FormalParameterOption

    def formals(parameters) -> tuple[Formal, ...]:
        return tuple(
            Formal(
                p.name,
                p.type_str,
                frozenset(p.types),
                p.option == option.Optional,
                p.option == option.Variadic,
                p.is_homogeneous,
            )
            for p in parameters
        )

    attributes = {
        name: Attribute(name, int(a.type), a.required, a.default_value if a.default_value.name else None)
        for name, a in schema.attributes.items()
    }
    return Version(
        schema.domain,
        schema.name,
        schema.since_version,
        last,
        schema.deprecated,
        formals(schema.inputs),
        formals(schema.outputs),
        schema.min_input,
        schema.max_output,
        attributes,
        schema,
    )


@functools.cache
def at(domain: str, op: str, opset: int) -> Version | None:
    """The version of an operator in force at an opset, None before its birth or where no schema knows it."""
    for version in reversed(history(domain, op)):
        if version.since <= opset:
            return version
    return None


def exists(domain: str, op: str, opset: int) -> bool:
    """Whether the standard has an operator at an opset.

    A model-local function of its name is then none that a node calls: ONNX leaves it to runtimes, and those that there
    are take the operator.
    """
    version = at(domain, op, opset)
    return version is not None and not version.deprecated


def meant_at(domain: str, op: str, opset: int) -> Version | None:
    """The version that a node of this opset means: the one in force, or the first for one from before its schema."""
    return at(domain, op, max(opset, EXPERIMENTAL.get(op, 0) if domain == "" else 0))


@functools.cache
def types_at(opset: int) -> frozenset[str]:
    """The type strings that some operator of ai.onnx produces or takes at an opset."""
    versions = [version for version in (at("", op, opset) for op in names("")) if version and not version.deprecated]
    return frozenset(t for version in versions for formal in (*version.inputs, *version.outputs) for t in formal.types)


# --- values of attributes --------------------------------------------------------------
class AttributeReference:
    """The value of an attribute that refers to an attribute of the enclosing function.

    It can be handed on to a new node; a rewrite that needs to know it is refused, and the function is then
    inlined so that the value is known.
    """

    def __init__(self, name: str, type: int):
        self.name, self.type = name, type

    def unknown(self, *_: Any):
        raise RefusedError(
            f"its value is the function's attribute '{self.name}', known only where the function is called"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __mul__ = __neg__ = unknown
    __bool__ = __int__ = __float__ = __index__ = __iter__ = __len__ = __getitem__ = __contains__ = unknown
    __array__ = unknown
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str):
        # What a tensor or a graph would be asked for; Python's own protocols get the answer that they expect.
        if name.startswith("__"):
            raise AttributeError(name)
        self.unknown()


def value_of(attribute: AttributeProto) -> Any:
    """An attribute's value in Python's terms: strings decoded, tensors and graphs as their protos."""
    if attribute.ref_attr_name:
        return AttributeReference(attribute.ref_attr_name, attribute.type)
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        # A string attribute is bytes; those that are not text stay as they are.
        return value.decode("utf-8", "surrogateescape")
    if attribute.type == AttributeProto.STRINGS:
        return [v.decode("utf-8", "surrogateescape") for v in value]
    return list(value) if isinstance(value, tuple | list) else value


def bind(node: NodeProto, version: Version) -> tuple[list[str | None], dict[str, Any]]:
    """A node's inputs by position (None where left out) and its attributes by name, defaults filled in.

    Without the hint of opset 1, which says nothing of the result.
    """
    inputs: list[str | None] = [name or None for name in node.input]
    fixed = len(version.inputs) - (1 if version.inputs and version.inputs[-1].variadic else 0)
    inputs += [None] * (fixed - len(inputs))
    known = (a for a in version.attributes.values() if a.name != HINT)
    attributes = {a.name: value_of(a.default) if a.default is not None else None for a in known}
    attributes.update((a.name, value_of(a)) for a in node.attribute if a.name != HINT)
    return inputs, attributes


def inert(attribute: AttributeProto, version: Version) -> bool:
    """Whether leaving this attribute out means the same: an optimization hint, or the default written out."""
    if attribute.name == HINT:
        return True
    known = version.attributes.get(attribute.name)
    if known is None or known.default is None or attribute.ref_attr_name:
        return False
    return same_value(attribute, known.default)


def same_value(a: AttributeProto, b: AttributeProto) -> bool:
    return a.type == b.type and helper.get_attribute_value(a) == helper.get_attribute_value(b)


def takes_all(version: Version, other: Version, types: frozenset[str]) -> bool:
    """Whether `version` takes whatever `other` does, neither having attributes, as far as values have these types."""
    if version.deprecated or version.attributes or version.max_outputs < other.max_outputs:
        return False
    pairs = [*zip(other.inputs, version.inputs, strict=False), *zip(other.outputs, version.outputs, strict=False)]
    variables: dict[str, str] = {}  # what has one type here must have had one type there
    return (
        len(version.inputs) == len(other.inputs)
        and version.min_inputs <= other.min_inputs
        and all((a.optional, a.variadic, a.homogeneous) == (b.optional, b.variadic, b.homogeneous) for a, b in pairs)
        and all((a.types & types) <= b.types and variables.setdefault(b.var, a.var) == a.var for a, b in pairs)
    )


# --- legality --------------------------------------------------------------------------
class Violation(NamedTuple):
    """What a version objects to in a node. `var` is set where it is a matter of element types alone."""

    text: str
    var: str = ""
    type: str = ""


def violations(
    node: NodeProto,
    version: Version,
    type_of: Callable[[str], str | None],
    before: Version | None = None,
    possible: Callable[[], frozenset[str]] = frozenset,
) -> Iterator[Violation]:
    """What `version` objects to in `node`: inputs, outputs, attributes, and types where `type_of` tells them.

    A type that is not known is an objection where it could be one that `before`, the version that the node comes
    from, admits and `version` does not; `possible` gives the types that can occur in the result at all.
    """
    if version.deprecated:
        yield Violation(f"it is deprecated from opset {version.since} on")
        return
    yield from _attribute_violations(node, version)
    given = [k for k, name in enumerate(node.input) if name]
    count = given[-1] + 1 if given else 0
    if count > len(version.inputs) and not (version.inputs and version.inputs[-1].variadic):
        names = ", ".join(f"'{node.input[k]}'" for k in given if k >= len(version.inputs))
        yield Violation(f"version {version.since} has no input for {names}")
    if len(node.input) < version.min_inputs and version.inputs and version.inputs[-1].variadic:
        yield Violation(f"version {version.since} takes no fewer than {version.min_inputs} inputs")
    for k, formal in enumerate(version.inputs):
        if not formal.optional and not formal.variadic and k not in given:
            yield Violation(f"version {version.since} requires the input '{formal.name}'")
    if len([name for name in node.output if name]) > version.max_outputs:
        yield Violation(f"version {version.since} has no more than {version.max_outputs} outputs")
    yield from _type_violations(node, version, type_of, before, possible)


def _attribute_violations(node: NodeProto, version: Version) -> Iterator[Violation]:
    for attribute in node.attribute:
        known = version.attributes.get(attribute.name)
        if known is None:
            yield Violation(f"version {version.since} has no attribute '{attribute.name}'")
        elif known.type != attribute.type and attribute.type:
            yield Violation(f"version {version.since} has another type for attribute '{attribute.name}'")
    names = {a.name for a in node.attribute}
    for known in version.attributes.values():
        if known.required and known.name not in names:
            yield Violation(f"version {version.since} requires the attribute '{known.name}'")


def _type_violations(node, version, type_of, before, possible) -> Iterator[Violation]:
    bound: dict[str, str] = {}
    values = [(name, version.input(k), before and before.input(k)) for k, name in enumerate(node.input)]
    # An output of a type variable that an input binds needs no look of its own.
    of_inputs = {formal.var for _, formal, _ in values if formal is not None}
    values += [
        (name, formal, before and before.output(k))
        for k, name in enumerate(node.output)
        if (formal := version.output(k)) is not None and (formal.var not in of_inputs or not formal.homogeneous)
    ]
    for name, formal, old in values:
        if not name or formal is None:
            continue
        found = type_of(name)
        if found is None:
            if old is not None and old.types - formal.types and (old.types & possible()) - formal.types:
                yield Violation(f"the element type of '{name}' is not known")
        elif found not in formal.types:
            yield Violation(f"version {version.since} does not take {found} for '{formal.name}'", formal.var, found)
        elif formal.homogeneous and bound.setdefault(formal.var, found) != found:
            yield Violation(
                f"version {version.since} wants one type for '{formal.var}', here {bound[formal.var]} and {found}"
            )


def type_text(proto: onnx.TypeProto) -> str | None:
    """A TypeProto as a schema writes it, "tensor(float)", "seq(tensor(int64))"; None where it says nothing."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return tensor_text(proto.tensor_type.elem_type) if proto.tensor_type.elem_type else None
    if kind == "sparse_tensor_type":
        return f"sparse_{tensor_text(proto.sparse_tensor_type.elem_type)}"
    if kind in ("sequence_type", "optional_type"):
        inner = type_text(getattr(proto, kind).elem_type)
        return inner and f"{'seq' if kind == 'sequence_type' else 'optional'}({inner})"
    if kind == "map_type":
        key = onnx.TensorProto.DataType.Name(proto.map_type.key_type).lower()
        inner = type_text(proto.map_type.value_type)
        return inner and f"map({key},{inner})"
    return None


@functools.cache
def tensor_text(elem_type: int) -> str:
    """The type of a tensor as schemas write it; of an element type that nobody knows, with its number."""
    names = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    return f"tensor({names.get(elem_type, elem_type)})"
