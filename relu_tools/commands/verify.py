"""`relu-tools verify`."""

from __future__ import annotations

import click

from relu_tools.commands.shared import STATUS, echo_json, json_option, seed_option, source


@click.command("verify", epilog=f"{STATUS} Two models that could not be run are not known to be equal, and so 1.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@json_option
@seed_option
def command(before: str, after: str, as_json: bool, seed: int) -> int:
    """Run the models A and B on the same inputs and say how far apart their outputs are.

    The inputs are random and special values. onnxruntime is the judge where it is installed and can run a model,
    onnx's reference evaluator where not; the answer names them.

    \b
      relu-tools verify net.onnx net.opset13.onnx
      relu-tools verify net.onnx net.opset13.onnx --seed 7
      relu-tools verify a.onnx b.onnx --json | jq .figures
    """
    if before == after == "-":
        raise click.UsageError("standard input holds one model, not two", click.get_current_context())
    from relu_tools import present, textformats
    from relu_tools.modelfile import open_model
    from relu_tools.verification import verify

    files = [open_model(source(model)) for model in (before, after)]
    # A model in a binary file is handed over as such: its weights may be many, or in other files.
    models = [
        file.path if file.path and file.path.suffix.lower() not in textformats.FORMATS else file.whole()
        for file in files
    ]
    verification = verify(*models, seed=seed)
    if as_json:
        echo_json({"before": before, "after": after, **verification.to_dict()})
    else:
        click.echo(present.verification(verification))
    return 0 if verification else 1
