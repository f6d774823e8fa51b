"""Convert an ONNX model between any two opsets, expand function bodies, and prove the result by running both forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relu_tools.compatibility import Compatibility, check
    from relu_tools.conversion import Conversion, Inlining, VerificationError, convert, convert_version, inline
    from relu_tools.difference import Difference, diff
    from relu_tools.explanation import explain
    from relu_tools.report import Change, ConversionError, ModelFileError, Refusal, Report, Step
    from relu_tools.verification import Verification, verify

_HOMES = {
    "compatibility": ("Compatibility", "check"),
    "conversion": ("Conversion", "Inlining", "VerificationError", "convert", "convert_version", "inline"),
    "difference": ("Difference", "diff"),
    "explanation": ("explain",),
    "report": ("Change", "ConversionError", "ModelFileError", "Refusal", "Report", "Step"),
    "verification": ("Verification", "verify"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Change",
    "Compatibility",
    "Conversion",
    "ConversionError",
    "Difference",
    "Inlining",
    "ModelFileError",
    "Refusal",
    "Report",
    "Step",
    "Verification",
    "VerificationError",
    "check",
    "convert",
    "convert_version",
    "diff",
    "explain",
    "inline",
    "verify",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # The command line starts without loading what it does not use.
    if name not in _HOME:
        raise AttributeError(f"module 'relu_tools' has no attribute '{name}'")
    import importlib

    for shared in _HOMES[_HOME[name]]:
        globals()[shared] = getattr(importlib.import_module(f"relu_tools.{_HOME[name]}"), shared)
    return globals()[name]
