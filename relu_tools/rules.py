"""The rules that a project sets its models, in [tool.relu-tools] of pyproject.toml."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

TABLE = "[tool.relu-tools]"


@dataclasses.dataclass(frozen=True)
class Rules:
    """`models` are patterns of paths; `opsets` those to be reachable; `runtime` what is to load them."""

    models: tuple[str, ...] = ()
    opsets: list[int] | None = None
    runtime: str | None = None


def read(path: Path) -> Rules:
    """The rules in a file; none where there is no file or no table. Raises ValueError, one sentence, for nonsense."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if not path.exists():
        return Rules()
    try:
        tools = tomllib.loads(path.read_text("utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    table = tools.get("relu-tools", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {TABLE} is a table, not {table!r}")
    if unknown := sorted(set(table) - {"models", "opset", "runtime"}):
        raise ValueError(f"{path}: {TABLE} has no key '{unknown[0]}'; it has models, opset and runtime")
    models = table.get("models", [])
    if not (isinstance(models, list) and all(isinstance(pattern, str) for pattern in models)):
        raise ValueError(f"{path}: models in {TABLE} are a list of paths, not {models!r}")
    runtime = table.get("runtime")
    if runtime is not None and not isinstance(runtime, str):
        raise ValueError(f"{path}: runtime in {TABLE} is a name or a file, not {runtime!r}")
    return Rules(tuple(models), _opsets(path, table.get("opset")), runtime)


def _opsets(path: Path, value: Any) -> list[int] | None:
    """11, [9, 11], or none."""
    if value is None:
        return None
    opsets = value if isinstance(value, list) else [value]
    if not (opsets and all(type(opset) is int for opset in opsets)):
        raise ValueError(f"{path}: opset in {TABLE} is a number or several, not {value!r}")
    return opsets
