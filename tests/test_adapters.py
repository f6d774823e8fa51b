"""Golden cases: what each adapter makes of a node, or why it refuses it.

`tests/cases/<Operator>-<from>-<to>.txt` holds the cases of a step ("none": before the operator's birth); an operator
of another domain than ai.onnx has it before its name and a dot. A case is

    # what is special about it
    <a model in ONNX's text format>
    --- at 13
    what comes out at that opset, a node a line, or "refused: " and the reason

The last part is written by `pytest tests/test_adapters.py --update`; read what it wrote.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import relu_tools
from relu_tools import ConversionError, adapters, schemas
from relu_tools.runners import run_jobs

CASES = Path(__file__).with_name("cases")
FILES = sorted(path.stem for path in CASES.glob("*.txt"))

RECURRENT = (
    "# The sequence is asked for.",
    "# Only the last state has a name.",
    "# The sequence has a name.",
    "# The sequence is left out, and so are inputs in between.",
    "# The sequence has a name that nothing reads.",
)

# Cases that no judge can tell about.
# The reference evaluator of an older onnx runs fewer operators, and gets a mask of Attention wrong.
OLDER = schemas.newest() < 28
EQUAL = ("bit-exact", "within rounding", *(["not verified"] if OLDER else []))
NOT_JUDGED = {
    *([("Attention-24-23", "# The valid keys of each batch are a mask.")] if OLDER else []),
    # onnxruntime fills the mask of the versions before 12 with False.
    ("Dropout-10-12", "# With a mask."),
    ("Dropout-7-6", "# The mask is all ones."),
    # Both round alpha not to float16, as the function body does.
    ("ThresholdedRelu-10-none", "# alpha is rounded to float16."),
    ("ThresholdedRelu-10-none", "# float16 before there is a choice."),
    # onnxruntime's kernels of 18 and 28 differ where the exponential overflows; the node is the same.
    ("ReduceLogSumExp-18-28", "# A float."),
    ("ReduceLogSumExp-18-28", "# An integer."),
    # The reference evaluator takes a bound that is left out for none, not for the limit of the type.
    ("Clip-11-6", "# No bound."),
    ("Clip-11-6", "# A bound of double that no float holds."),
    # What is drawn at random is never twice the same.
    *((f"Random{kind}-22-1", "# bfloat16.") for kind in ("Normal", "Uniform")),
    *((f"Random{kind}-22-1", "# float.") for kind in ("Normal", "NormalLike", "Uniform", "UniformLike")),
    *((f"Random{kind}Like-22-1", "# The type of the input.") for kind in ("Normal", "Uniform")),
    *((f"Random{kind}Like-22-1", "# Another type.") for kind in ("Normal", "Uniform")),
    ("Bernoulli-22-15", "# The type of the input."),
    ("Bernoulli-22-15", "# float."),
    ("Multinomial-22-7", "# bfloat16."),
    ("Multinomial-22-7", "# float."),
    # No runtime loads a deprecated operator, or has a kernel for a Split whose lengths are floats.
    ("Scatter-11-9", "# Constants below 0 are counted from the front."),
    ("Scatter-11-9", "# Constants from 0 on stay."),
    ("Split-1-2", "# Floats."),
    # The order is not defined.
    ("TopK-11-10", "# In any order."),
    # The shapes must fit the data.
    ("Col2Im-18-none", "# The shapes are no constants."),
    # There is no kernel for the oldest version, and no meaning for this mode.
    ("TopK-1-10", "# k becomes a constant."),
    ("Upsample-1-7", "# Height and width."),
    ("Upsample-7-1", "# Height and width."),
    # No judge has the recurrent operators of before 7, nor LSTM with the batch first.
    *((f"{op}-{step}", c) for op in ("RNN", "LSTM", "GRU") for step in ("1-7", "3-7", "7-1", "7-3") for c in RECURRENT),
    ("GRU-1-3", "# The misspelt default."),
    ("GRU-1-3", "# Another direction."),
    ("GRU-3-1", "# The default direction is spelt out, and Y_h gets a name."),
    ("LSTM-14-7", "# The batch comes first."),
    ("LSTM-14-7", "# With states, and without the sequence."),
    # The judges of the form before differ by a rounding.
    ("RNN-14-7", "# The batch comes first."),
    # The samples have no lengths that fit.
    ("Scan-8-9", "# Sequences that are shorter than others."),
    ("Upsample-9-7", "# The scales are fed, and the sizes are known."),
    # No judge has pools of before 7, nor quantizes integers or by float8e8m0.
    *((name, c) for name in ("LpPool-1-2", "GlobalLpPool-1-2") for c in ("# A whole order.", "# Another order.")),
    ("LpPool-2-1", "# A whole order."),
    ("GlobalLpPool-2-1", "# The default."),
    ("QuantizeLinear-13-19", "# Integers are divided by a float scale."),
    ("QuantizeLinear-24-23", "# A constant power of 2."),
    # onnxruntime's kernels of 23 and 24 round otherwise than the function body does at 25, and take no shorter mask.
    ("Attention-25-24", "# No window."),
    ("Attention-24-23", "# A mask of fewer keys is filled up."),
    # No runtime has a kernel for these.
    ("MatMulInteger-10-none", "# A zero point for each row, before MatMul takes integers."),
    ("QuantizeLinear-10-none", "# Integers without one."),
    ("MeanVarianceNormalization-9-none", "# double."),
    # onnxruntime does not add the 1e-9 to the deviation.
    ("MeanVarianceNormalization-9-none", "# Other axes."),
    # onnxruntime computes integers in float.
    ("Shrink-9-none", "# int32."),
    # What is drawn at random is no axis, and there is no number of axes to point along.
    ("CumProd-26-none", "# The axis is no constant."),
    ("GatherND-11-none", "# Along how many axes is told by the ranks."),
    # onnxruntime gives a scalar one coordinate, against the specification.
    ("NonZero-9-none", "# A scalar has no coordinates."),
}


@dataclasses.dataclass(frozen=True)
class Case:
    comment: str
    text: str
    target: int
    expected: str

    def __str__(self) -> str:
        return f"{self.comment}\n{self.text}\n--- at {self.target}\n{self.expected}\n"

    @property
    def model(self) -> ModelProto:
        return onnx.parser.parse_model(self.text)


def step(name: str) -> tuple[str, str, int, int | None]:
    """Domain, operator, source and target."""
    operator, source, target = name.rsplit("-", 2)
    domain, _, op = operator.rpartition(".")
    return domain, op, int(source), None if target == "none" else int(target)


@functools.cache
def read(name: str) -> list[Case]:
    cases = []
    for part in re.split(r"\n\n(?=#)", (CASES / f"{name}.txt").read_text().rstrip("\n")):
        match = re.fullmatch(r"(#[^\n]*)\n(.*)\n--- at (\d+)\n?(.*)", part, re.DOTALL)
        assert match, f"{name}: this is no case: {part}"
        cases.append(Case(match[1], match[2], int(match[3]), match[4]))
    return cases


def known(name: str) -> bool:
    """Whether the installed onnx has the step, and all opsets that its cases name."""
    domain, _, source, target = step(name)
    return max(source, target or 0) <= schemas.newest(domain)


# --- writing what comes out ------------------------------------------------------------------
def show(model: ModelProto) -> str:
    """A node a line; the printer that comes with onnx writes differently from release to release."""
    lines = [f"{t.name} is stored: {show_tensor(t)}" for t in model.graph.initializer]
    return "\n".join(lines + [show_node(node) for node in model.graph.node])


def show_node(node: NodeProto) -> str:
    attributes = ", ".join(f"{a.name} = {show_value(a)}" for a in sorted(node.attribute, key=lambda a: a.name))
    domain = f"{node.domain}." if node.domain else ""
    call = f"{domain}{node.op_type}{f'<{attributes}>' if attributes else ''}({', '.join(node.input)})"
    return f"{', '.join(node.output)} = {call}"


def show_value(attribute: AttributeProto) -> str:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return show_tensor(value)
    if isinstance(value, GraphProto):
        formals, results = (", ".join(info.name for info in infos) for infos in (value.input, value.output))
        return f"({formals}) => ({results}) {{{'; '.join(map(show_node, value.node))}}}"
    if isinstance(value, bytes):
        return f'"{value.decode()}"'
    if attribute.type == AttributeProto.FLOAT:
        return str(np.float32(value))
    return str(list(value)) if attribute.type == AttributeProto.INTS else str(value)


def show_tensor(tensor: TensorProto) -> str:
    kind = TensorProto.DataType.Name(tensor.data_type).lower()
    return f"{kind}{list(tensor.dims) or ''} {numpy_helper.to_array(tensor).tolist()}"


def outcome(domain: str, case: Case) -> tuple[str, relu_tools.Conversion | None]:
    try:
        conversion = relu_tools.convert(case.model, {domain: case.target}, verify="off")
    except ConversionError as error:
        reasons = {f"refused: {r.step}: {r.reason}": None for r in error.refusals if not r.step.op.startswith("graph ")}
        return "\n".join(reasons), None
    return show(conversion.model), conversion


# --- the tests -------------------------------------------------------------------------------
def test_each_adapter_has_its_cases_and_each_file_its_adapter():
    adapters.load_all()
    assert set(adapters.TABLE) == {step(name) for name in FILES if known(name)}


@pytest.mark.parametrize("name", FILES)
def test_golden(name, request):
    if not known(name):
        pytest.skip(f"onnx {onnx.__version__} does not know this step")
    cases = read(name)
    if request.config.getoption("--update"):
        cases = [dataclasses.replace(case, expected=outcome(step(name)[0], case)[0]) for case in cases]
        (CASES / f"{name}.txt").write_text("\n".join(map(str, cases)))
        read.cache_clear()
    for case in cases:
        assert outcome(step(name)[0], case)[0] == case.expected, case.comment


@pytest.mark.parametrize("name", FILES)
def test_the_cases_are_of_the_step(name):
    """Each begins with the step's source version and leads beyond it; nothing else in it is changed on the way."""
    domain, op, source, target = step(name)
    assert len({case.comment for case in read(name)}) == len(read(name))
    for case in read(name) if known(name) else ():
        model = case.model
        assert [n.op_type for n in model.graph.node].count(op) == 1, case.comment
        (opset,) = [o.version for o in model.opset_import if o.domain == domain]
        version = schemas.at(domain, op, opset)
        assert source == (version.since if version.since <= opset else None), case.comment
        if target is not None and target > source:
            assert case.target >= target, case.comment
        else:
            assert case.target < source, case.comment


@pytest.mark.parametrize("name", FILES)
def test_what_comes_out_is_legal_and_stays(name):
    """The checker admits it, it is named as it was, and converting it again to that opset changes nothing."""
    for case in read(name) if known(name) else ():
        _, conversion = outcome(step(name)[0], case)
        if conversion is None:
            continue
        model = conversion.model
        # It does not admit that the rank of an input is not known.
        if all(i.type.tensor_type.HasField("shape") for i in (*model.graph.input, *model.graph.output)):
            onnx.checker.check_model(model, full_check=case.target >= 7)
        assert [o.name for o in model.graph.output] == [o.name for o in case.model.graph.output]
        again = relu_tools.convert(model, {step(name)[0]: case.target}, verify="off")
        assert again.model == model and again.report.changes == [], case.comment


@pytest.fixture(scope="session")
def figures(request, tmp_path_factory) -> dict[tuple[str, str], dict]:
    """What running both forms gave, of every case whose test is to run; one child process does them all."""
    folder = tmp_path_factory.mktemp("cases")
    names = {
        i.callspec.params["name"] for i in request.session.items if getattr(i, "originalname", "") == "test_numbers"
    }
    keys, jobs = [], []
    for name in sorted(filter(known, names)):
        for number, case in enumerate(read(name)):
            if case.expected.startswith("refused: "):
                continue
            try:
                conversion = relu_tools.convert(case.model, {step(name)[0]: case.target}, verify="off")
            except Exception:  # the golden test tells of it; here it must not stop the others
                continue
            accuracy = max((change.accuracy for change in conversion.report.changes), default="exact")
            job = {"accuracy": accuracy, "seed": 0, "seconds": 2}
            for side, model in (("before", case.model), ("after", conversion.model)):
                job[side] = f"{name}.{number}.{side}.onnx"
                (folder / job[side]).write_bytes(model.SerializeToString())
            keys.append((name, case.comment))
            jobs.append(job)
    return dict(zip(keys, run_jobs(jobs, folder, 60), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_numbers(name, figures):
    """Both forms give the same wherever a judge can run them."""
    for case in read(name) if known(name) else ():
        if not case.expected.startswith("refused: ") and (name, case.comment) not in NOT_JUDGED:
            answer = figures.get((name, case.comment), {"error": "it was not converted"})
            assert answer.get("verdict") in EQUAL, (case.comment, answer)


def test_every_refusal_of_an_adapter_is_met():
    """Each reason that the families' code gives is the reason of some case."""
    folder = Path(adapters.__file__).parent
    said = "\n".join(path.read_text() for path in CASES.glob("*.txt"))
    missing = []
    for path in sorted(folder.glob("*.py")):
        for text in re.findall(r'RefusedError\(\s*f?"([^"]*)"', path.read_text()):
            pattern = ".*".join(map(re.escape, re.split(r"\{[^}]*\}", text)))
            if not re.search(rf"refused: .*{pattern}", said):
                missing.append(f"{path.name}: {text}")
    assert missing == []
