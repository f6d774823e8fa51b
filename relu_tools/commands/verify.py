"""`relu-tools verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from relu_tools.commands.shared import STATUS, echo_json, json_option, source
from relu_tools.commands.trial import Trial, progress, trial_options

if TYPE_CHECKING:
    from relu_tools.modelfile import ModelFile
    from relu_tools.verification import Verification


@click.command(
    "verify",
    short_help="Run two models and compare",
    epilog=f"{STATUS} Two models that could not be run are not known to be equal, and so 1.",
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--locate", is_flag=True, help="Find the first value at which models that differ part.")
@trial_options(None)
@json_option
def command(before: str, after: str, locate: bool, trial: Trial, as_json: bool) -> int:
    """Run the models A and B on the same inputs and say how far apart their outputs are.

    The inputs are random and special values, or those of --inputs. onnxruntime is the judge where it is installed and
    can run a model, onnx's reference evaluator where not; the answer names them.

    \b
      relu-tools verify net.onnx net.opset13.onnx
      relu-tools verify net.onnx net.opset13.onnx --seed 7 --report net.html
      relu-tools verify net.onnx net.opset13.onnx --inputs samples.npz --inputs test_data_set_0
          on arrays by the names of the inputs, and on input_0.pb and so on of a folder
      relu-tools verify a.onnx b.onnx --locate
          says which value is the first to differ
      relu-tools verify a.onnx b.onnx --json | jq .figures
    """
    if before == after == "-":
        raise click.UsageError("standard input holds one model, not two", click.get_current_context())
    trial.check_page(before, after)
    from relu_tools import present
    from relu_tools.modelfile import open_model
    from relu_tools.verification import verify

    files = [open_model(source(model)) for model in (before, after)]
    with progress("running both models"):
        verification = verify(*files, locate=locate, **trial.settings())
    if trial.page is not None:
        trial.write_page(_page((before, after), files, verification))
    if as_json:
        echo_json({"before": before, "after": after, **verification.to_dict()})
    else:
        click.echo(present.verification(verification))
    return 0 if verification else 1


def _page(names: tuple[str, str], files: list[ModelFile], verification: Verification) -> str:
    from relu_tools import verification_page

    before, after = (file.model for file in files)
    return verification_page.verified(names, (before, after), verification)
