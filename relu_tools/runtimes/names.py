"""Whether the operators, type variables and attributes that a runtime's data name are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relu_tools import schemas
from relu_tools.bodies import TABLE


def misnomer(
    variables: Mapping[str, Iterable[str]],
    attributes: Mapping[str, Iterable[str]],
    opsets: Mapping[str, tuple[int, int]],
) -> str:
    """What is wrong with the first name that onnx does not know, in a sentence; empty where there is none.

    `variables` and `attributes` are those that are named of each operator. Nothing is said of domains that onnx does
    not know, or knows to an older opset than the runtime, nor of operators that have no schema but a body here.
    """
    for name in (*variables, *attributes):
        domain, _, op = name.rpartition("::")
        if domain not in schemas.domains() or opsets.get(domain, (0, 0))[1] > schemas.newest(domain):
            continue
        versions = schemas.history(domain, op)
        if not versions:
            if (domain, op) not in TABLE:
                own = f"one of the runtime's own has its domain before it, as in own::{op}"
                return f"there is no operator '{op}' in {domain or 'ai.onnx'}{_near(op, schemas.names(domain))}; {own}"
            continue
        formals = {f.var for v in versions for f in (*v.inputs, *v.outputs)} | {""}
        for var in variables.get(name, ()):
            if var not in formals:
                return f"{name} has no type variable '{var}'; it has {', '.join(sorted(formals - {''}))}"
        having = {attribute for v in versions for attribute in v.attributes}
        for attribute in attributes.get(name, ()):
            if attribute not in having:
                return f"{name} has no attribute '{attribute}'{_near(attribute, having)}"
    return ""


def _near(name: str, known: Iterable[str]) -> str:
    import difflib  # Few need it.

    near = difflib.get_close_matches(name, sorted(known), 1)
    return f" (is it {near[0]}?)" if near else ""
