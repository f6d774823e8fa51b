"""Planted errors, each a real kind of mistake, and right rewrites beside them: the verifier must tell them apart.

mutants/right.txt and mutants/wrong.txt hold the pairs: `#` and a name; for those that also run as a rewrite a line with
the accuracy that it claims; then the form before and the one after, each with its opset (and a domain with its
version) in front of ONNX's text of a graph, and functions after it. The default run takes those that also run as
rewrites and every third of the others, the marker `slow` all.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

from relu_tools.cli import main
from relu_tools.compare import BIT_EXACT, DIFFERENT, WITHIN_ROUNDING
from relu_tools.runners import run_jobs
from relu_tools.verification import Rewrite, Verification, verify, verify_rewrites

ACCURACIES = ("exact", "rounding", "body")
EQUAL = (BIT_EXACT, WITHIN_ROUNDING)


@dataclasses.dataclass(frozen=True)
class Pair:
    name: str
    before: str
    after: str
    accuracy: str = ""

    def model(self, side: str) -> onnx.ModelProto:
        head, _, graph = getattr(self, side).partition("(")
        opset, *others = head.split()
        imports = "".join(
            f', "{domain}" : {version}' for domain, version in zip(others[::2], others[1::2], strict=True)
        )
        return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{imports}]> g ({graph}')

    def rewrite(self) -> Rewrite:
        before, after = self.model("before"), self.model("after")
        return Rewrite(
            name=self.name,
            before=before.graph.node,
            before_opsets={"": before.opset_import[0].version},
            after=after.graph.node,
            after_opsets={"": after.opset_import[0].version},
            inputs={v.name: v.type for v in before.graph.input},
            constants={},
            outputs={v.name: onnx.TypeProto() for v in before.graph.output},
            accuracy=self.accuracy,
        )


def read(name: str) -> list[Pair]:
    pairs = []
    for block in (Path(__file__).parent / "mutants" / f"{name}.txt").read_text().strip().split("\n\n"):
        title, *lines = block.splitlines()
        accuracy = lines.pop(0) if lines[0] in ACCURACIES else ""
        pairs.append(Pair(title.removeprefix("# "), *lines, accuracy))
    return pairs


RIGHT, WRONG = read("right"), read("wrong")


def parameters(pairs: list[Pair]) -> list:
    sampled = [pair.accuracy or number % 3 == 0 for number, pair in enumerate(pairs)]
    marks = [() if default else pytest.mark.slow for default in sampled]
    return [pytest.param(pair, marks=mark, id=pair.name) for pair, mark in zip(pairs, marks, strict=True)]


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> list[Pair]:
    """The pairs of this run."""
    found = [item.callspec.params.get("pair") for item in request.session.items if hasattr(item, "callspec")]
    return list(dict.fromkeys(pair for pair in found if isinstance(pair, Pair)))


@pytest.fixture(scope="module")
def rewrites(chosen: list[Pair]) -> dict[str, Verification]:
    return dict(verify_rewrites([pair.rewrite() for pair in chosen if pair.accuracy]).parts)


@pytest.fixture(scope="module")
def models(chosen: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What `verify` answers, all from one child process."""
    folder = tmp_path_factory.mktemp("models")
    jobs = []
    for number, pair in enumerate(chosen):
        for side in ("before", "after"):
            (folder / f"{number}.{side}.onnx").write_bytes(pair.model(side).SerializeToString())
        job = {side: f"{number}.{side}.onnx" for side in ("before", "after")}
        jobs.append({**job, "accuracy": "model", "seed": 0, "seconds": 20})
    answers = run_jobs(jobs, folder, 30)
    return {pair.name: answer for pair, answer in zip(chosen, answers, strict=True)}


def test_there_are_enough_of_them_and_each_has_its_name() -> None:
    assert min(len(RIGHT), len(WRONG)) >= 70
    assert len({pair.name for pair in RIGHT + WRONG}) == len(RIGHT + WRONG)


@pytest.mark.parametrize("pair", parameters(RIGHT))
def test_right(pair: Pair, rewrites: dict[str, Verification], models: dict[str, dict]) -> None:
    assert models[pair.name].get("verdict") in EQUAL, models[pair.name]
    if pair.accuracy:
        assert rewrites[pair.name].verdict in EQUAL, rewrites[pair.name]


@pytest.mark.parametrize("pair", parameters(WRONG))
def test_wrong(pair: Pair, rewrites: dict[str, Verification], models: dict[str, dict]) -> None:
    """Where the judges disagree the verdict is no pass, though it is not "different" either."""
    answer = models[pair.name]
    assert answer.get("verdict") == DIFFERENT or "the judges disagree" in answer.get("reason", ""), answer
    if pair.accuracy:
        assert rewrites[pair.name].verdict == DIFFERENT, rewrites[pair.name]


@pytest.mark.parametrize("pairs, status", [(RIGHT, 0), (WRONG, 1)])
def test_through_the_library_and_the_command(pairs: list[Pair], status: int, tmp_path: Path) -> None:
    for pair in pairs[:: len(pairs) // 3]:
        files = [str(tmp_path / f"{side}.onnx") for side in ("before", "after")]
        for side, file in zip(("before", "after"), files, strict=True):
            onnx.save(pair.model(side), file)
        assert bool(verify(*files)) is (status == 0), pair.name
        assert CliRunner().invoke(main, ["verify", *files]).exit_code == status, pair.name
