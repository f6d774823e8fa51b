"""The ledger of steps, `tests/history.tsv`: what was decided for each, against the installed onnx and the engine.

A line is a directed step: domain, operator, source, target ("none": before the operator's birth), the decision and
a remark where the specification's text changed. Decisions are

- "adapter": a function is registered for the step;
- "function body": the schema's own stands for the operator below its birth;
- "same meaning": the engine takes the node as it is, followed by what the other version lacks:
  "types narrow" (a cast where that is exact, else a refusal), "attribute left out" (at its default or a hint),
  "default written out" (the other version has another one or none), "attribute required", "fewer inputs",
  "fewer outputs" (refused where they are there);
- "refused": there is no older form;
- "no rule": nobody has decided; the engine refuses it by name.

`pytest tests/test_history.py --update` writes lines for what the engine does now and keeps the remarks; where the text
changed it leaves it to you to read both versions and to say how.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest

from relu_tools import adapters, schemas

LEDGER = Path(__file__).with_name("history.tsv")
HEADER = ["domain", "operator", "source", "target", "decision", "remark"]
Step = tuple[str, str, int, "int | None"]


@functools.cache
def ledger() -> dict[Step, str]:
    """The decision of each step."""
    header, *lines = [line.split("\t") for line in LEDGER.read_text().splitlines()]
    assert header == HEADER
    decisions: dict[Step, str] = {}
    for line in lines:
        assert len(line) == len(HEADER), line
        domain, op, source, target, decision, _ = line
        key = (schemas.normal(domain), op, int(source), None if target == "none" else int(target))
        assert key not in decisions, f"two lines for {line[:4]}"
        decisions[key] = decision
    return decisions


def steps(domain: str, op: str) -> list[Step]:
    """Every directed step of an operator in the installed onnx; its birth as well, from 2 on."""
    births = [version.since for version in schemas.history(domain, op)]
    found: list[Step] = [(domain, op, births[0], None)] if births[0] > 1 else []
    for low, high in zip(births, births[1:], strict=False):
        found += [(domain, op, low, high), (domain, op, high, low)]
    return found


def decided(step: Step) -> str:
    """What the engine does with a step, by the tables of rules and the schemas."""
    domain, op, source, target = step
    if adapters.find(*step):
        return "adapter"
    if target is None:
        return "function body" if adapters.has_body(domain, op, source) else "refused"
    if not adapters.is_same(domain, op, source, target):
        return "no rule"
    here, there = schemas.at(domain, op, source), schemas.at(domain, op, target)
    lacks = []
    for k, formal in enumerate((*here.inputs, *here.outputs)):
        at = there.input(k) if k < len(here.inputs) else there.output(k - len(here.inputs))
        if at is not None and formal.types - at.types:
            lacks.append("types narrow")
    for name, attribute in here.attributes.items():
        after = there.attributes.get(name)
        if after is None:
            lacks.append("attribute left out")
        elif attribute.default is not None and (
            after.default is None or not schemas.same_value(after.default, attribute.default)
        ):
            lacks.append("default written out")
        elif after.required and not attribute.required:
            lacks.append("attribute required")
    lacks += ["fewer inputs"] if len(here.inputs) > len(there.inputs) else []
    lacks += ["fewer outputs"] if here.max_outputs > there.max_outputs else []
    return ", ".join(["same meaning", *dict.fromkeys(lacks)])


def covered() -> list[tuple[str, str]]:
    """The operators that some rule names."""
    adapters.load_all()
    return sorted({rule[:2] for rule in (*adapters.TABLE, *adapters.SAME, *adapters.BODIES)})


@pytest.fixture(scope="module", autouse=True)
def update(request):
    if request.config.getoption("--update"):
        lines = {tuple(line.split("\t")[:4]): line for line in LEDGER.read_text().splitlines()[1:]}
        for domain, op in covered():
            for step in steps(domain, op):
                key = (domain or "ai.onnx", op, str(step[2]), str(step[3] or "none"))
                remark = lines[key].split("\t")[5] if key in lines else ""
                lines[key] = "\t".join([*key, decided(step), remark])
        ordered = sorted(lines.items(), key=lambda item: order(*item[0]))
        LEDGER.write_text("\n".join(["\t".join(HEADER), *(line for _, line in ordered)]) + "\n")
        ledger.cache_clear()


def order(domain: str, op: str, source: str, target: str) -> tuple:
    """By operator, each with its births upwards, the way up before the way down."""
    return domain, op, max(int(source), int(target.replace("none", "0"))), int(source)


def agreed(step: Step, decision: str) -> bool:
    """An onnx older than the ledger has some versions' types otherwise: there the kind of decision must do."""
    newest = max(max(s, t or 0) for domain, _, s, t in ledger() if domain == step[0])
    now = decided(step)
    return now == decision or (newest > schemas.newest(step[0]) and now.split(",")[0] == decision.split(",")[0])


@pytest.mark.parametrize(("domain", "op"), covered())
def test_every_step_is_decided_and_so_the_engine_does(domain, op):
    found = {
        step: decision
        for step, decision in ledger().items()
        if step[:2] == (domain, op) and max(step[2], step[3] or 0) <= schemas.newest(domain)
    }
    assert set(found) == set(steps(domain, op))
    assert {step: decided(step) for step, decision in found.items() if not agreed(step, decision)} == {}


def test_no_line_is_of_an_operator_without_rules():
    """But for one that is born after the installed onnx."""
    known = {key for key in {step[:2] for step in ledger()} if schemas.history(*key)}
    assert known <= set(covered())


def test_the_ledger_is_in_order():
    """So that a merge cannot put a line twice."""
    keys = [tuple(line.split("\t")[:4]) for line in LEDGER.read_text().splitlines()[1:]]
    assert keys == sorted(keys, key=lambda key: order(*key))


def test_a_rule_without_a_line_is_noticed(monkeypatch):
    lines = {step: decision for step, decision in ledger().items() if step != ("", "Relu", 6, 13)}
    monkeypatch.setitem(globals(), "ledger", lambda: lines)
    with pytest.raises(AssertionError):
        test_every_step_is_decided_and_so_the_engine_does("", "Relu")


def test_an_adapter_that_goes_is_noticed(monkeypatch):
    table = {key: value for key, value in adapters.TABLE.items() if key != ("", "Relu", 14, 13)}
    monkeypatch.setattr(adapters, "TABLE", table)
    with pytest.raises(AssertionError):
        test_every_step_is_decided_and_so_the_engine_does("", "Relu")


def test_a_step_of_a_newer_onnx_is_noticed(monkeypatch):
    """A version that the schemas have and the ledger has not."""
    history = schemas.history
    relu = history("", "Relu")
    newer = (*relu, dataclasses.replace(relu[-1], since=schemas.newest()))
    monkeypatch.setattr(schemas, "history", lambda domain, op: newer if op == "Relu" else history(domain, op))
    with pytest.raises(AssertionError):
        test_every_step_is_decided_and_so_the_engine_does("", "Relu")


def text(version: schemas.Version) -> str:
    """What the specification says of a version, but for its types and the hint of opset 1."""
    schema = version.schema
    words = [schema.doc or ""]
    words += [f"{formal.name}: {formal.description}" for formal in (*schema.inputs, *schema.outputs)]
    words += [f"{a.name}: {a.description}" for _, a in sorted(schema.attributes.items()) if a.name != schemas.HINT]
    return " ".join(" ".join(words).split())


def test_where_the_text_changed_a_remark_says_how():
    silent = []
    for line in LEDGER.read_text().splitlines()[1:]:
        domain, op, source, target, _, remark = line.split("\t")
        domain = schemas.normal(domain)
        if target == "none" or max(int(source), int(target)) > schemas.newest(domain) or remark:
            continue
        here, there = (schemas.at(domain, op, int(version)) for version in (source, target))
        if text(here) != text(there):
            silent.append((op, source, target))
    assert silent == []
