"""Function bodies that a caller gives, and those in a Python file of the user's."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onnx import FunctionProto
from onnxscript import OnnxFunction
from onnxscript.values import TracedOnnxFunction

from relu_tools import schemas
from relu_tools.bodies import Bodies
from relu_tools.bodies.body import StaticBody, TracedBody, body_of
from relu_tools.report import qualified

KINDS = (OnnxFunction, TracedOnnxFunction, FunctionProto)


def given(functions: Iterable[Any]) -> Bodies:
    """Bodies of operators by the functions' own names and domains: onnxscript functions and FunctionProtos.

    Raises TypeError for anything else, ValueError for an operator that a schema defines and for two of one name.
    """
    found: dict[tuple[str, str], StaticBody | TracedBody] = {}
    for function in functions:
        if not isinstance(function, KINDS):
            raise TypeError(f"a body is an onnxscript function or a FunctionProto, not {type(function).__name__}")
        body = body_of(function, "given body")
        if schemas.history(*body.key):
            raise ValueError(f"{body} is defined by its schema; a body is for an operator that no schema defines")
        if body.key in found:
            raise ValueError(f"there are two bodies of {body}")
        found[body.key] = body
    return Bodies(found.values())


def load(path: str | os.PathLike[str]) -> list[Any]:
    """The onnxscript functions and FunctionProtos that a Python file holds, in order.

    Raises ValueError where it cannot be imported or holds none.
    """
    file = Path(path)
    name = f"{__name__}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file) if file.suffix == ".py" else None
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # onnxscript looks the module of a function up there.
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        # What the file prints must not mix with a model on standard output.
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except FileNotFoundError as error:
        if error.filename is not None and Path(error.filename) == file.absolute():
            raise ValueError(f"{path} is not a file") from None
        raise ValueError(f"{path} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        # A file of the user's may raise anything.
        raise ValueError(f"{path} cannot be imported: {_sentence(error)}") from error
    finally:
        sys.path.remove(str(file.resolve().parent))
    functions = {id(value): value for value in vars(module).values() if isinstance(value, KINDS)}
    if not functions:
        raise ValueError(f"{path} holds no onnxscript function")
    return list(functions.values())


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def taken_by_model(bodies: Bodies, functions: Iterable[FunctionProto]) -> list[str]:
    """Notes on bodies that the model has a function of its own for, which is what its nodes mean."""
    keys = {(schemas.normal(function.domain), function.name) for function in functions}
    return [
        f"the model defines {qualified(*key)} by a function of its own, which was taken"
        for key in bodies.found
        if key in keys
    ]
