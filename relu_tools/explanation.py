"""What a step between versions of an operator changes, and what is done about it."""

from __future__ import annotations

from relu_tools import adapters, schemas
from relu_tools.report import Step, did_you_mean, qualified
from relu_tools.schemas import Version


def explain(op: str, source: int, target: int) -> str:
    """Tells each step of an operator ("Relu", "my.domain::Op") between two opsets, in plain words.

    Raises ValueError where no schema knows the operator or the opset.
    """
    domain, _, name = op.rpartition("::")
    domain = schemas.normal(domain)
    versions = schemas.history(domain, name)
    if not versions:
        known = [qualified(other, name) for other in schemas.domains() for name in schemas.names(other)]
        raise ValueError(f"no schema knows an operator '{op}'{did_you_mean(op, known)}")
    for opset in (source, target):
        if not 1 <= opset <= schemas.newest(domain):
            raise ValueError(f"there is no opset {opset}: the highest known is {schemas.newest(domain)}")
    first = schemas.meant_at(domain, name, source)
    if first is None:
        raise ValueError(f"{op} does not exist before opset {versions[0].since}")
    lines = [f"{qualified(domain, name)} from opset {source} to {target}"]
    place = versions.index(first)
    way = 1 if target > source else -1
    while not versions[place].since <= target <= versions[place].last:
        place += way
        following = versions[place] if place >= 0 else None
        lines += _step(versions[place - way], following)
        if following is None:
            break
    if len(lines) == 1:
        lines.append(f"  version {first.since} is in force at both: nothing changes")
    return "\n".join(lines)


def _step(before: Version, after: Version | None) -> list[str]:
    step = Step(before.op, before.since, after and after.since, before.domain)
    lines = [f"\n{step}"]
    lines += [f"  contract: {text}" for text in (_contract(before, after) if after else [])]
    adapter = adapters.find(before.domain, before.op, before.since, after and after.since)
    stands = after is None and adapters.has_body(before.domain, before.op, before.since)
    ours = adapters.body_of(before.domain, before.op, before.since) if stands else None
    if found := adapter or ours:
        lines += [f"  {line}" if line else "" for line in found.doc.splitlines()]
        lines.append("  accuracy: " + ("exact" if found.accuracy == "exact" else "equal but for rounding"))
    elif stands:
        lines += ["  its function body stands for it", "  accuracy: equal but for rounding"]
    elif after is None:
        lines.append("  refused: it does not exist before, and nothing stands for it yet")
    elif adapters.is_same(before.domain, before.op, before.since, after.since):
        lines.append("  the meaning is the same: nodes stay as they are where the contract allows it")
    else:
        lines.append("  refused: this step has no rule yet")
    return lines


def _contract(before: Version, after: Version) -> list[str]:
    """What differs in the two versions' contracts, a line for each kind of difference."""
    lines = []

    def names(text: str, found: list[str]) -> None:
        if found:
            lines.append(f"{text} {', '.join(found)}")

    for kind in ("inputs", "outputs"):
        old, new = getattr(before, kind), getattr(after, kind)
        known_old, known_new = {f.name for f in old[len(new) :]}, {f.name for f in new[len(old) :]}
        names(f"{kind} gone:", sorted(known_old))
        names(f"{kind} new:", sorted(known_new))
    old_types = {t for f in (*before.inputs, *before.outputs) for t in f.types}
    new_types = {t for f in (*after.inputs, *after.outputs) for t in f.types}
    names("types gone:", sorted(t.removeprefix("tensor(").removesuffix(")") for t in old_types - new_types))
    names("types new:", sorted(t.removeprefix("tensor(").removesuffix(")") for t in new_types - old_types))
    names("attributes gone:", sorted(before.attributes.keys() - after.attributes.keys()))
    names("attributes new:", sorted(after.attributes.keys() - before.attributes.keys()))
    shared = before.attributes.keys() & after.attributes.keys()
    names("defaults changed:", sorted(a for a in shared if _default(before, a) != _default(after, a)))
    return lines


def _default(version: Version, name: str):
    default = version.attributes[name].default
    return None if default is None else str(schemas.value_of(default))
