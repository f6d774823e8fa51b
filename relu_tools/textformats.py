"""Models as text: ONNX text (`.onnxtxt`), protobuf's JSON (`.json`) and protobuf's text (`.textproto`).

What is written is read again and compared, since each of the formats leaves something out: ONNX text doc strings, for
one, and the others the fields that the installed onnx does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import onnx
import onnx.numpy_helper
import onnx.parser
import onnx.printer
from google.protobuf import json_format, text_format
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from relu_tools.report import ModelFileError

# Recursion in onnx's parser is bounded by the stack alone, so deep nesting would end the process.
_MAX_NESTING = 500


def to_text(model: onnx.ModelProto, ending: str) -> str:
    """The model in the format of a file ending; ModelFileError names the first thing that would be lost."""
    write, read, holds_encoding = FORMATS[ending]
    try:
        text = write(model)
        again = read(text)
    except Exception as error:  # Printers and parsers raise nearly anything.
        raise ModelFileError(f"the model cannot be written as {ending} and read again: {_one_line(error)}") from None
    if again.SerializeToString() == model.SerializeToString():
        return text
    lost = _difference(model, again, "", holds_encoding)
    if lost is None and holds_encoding:
        lost = "how some of it is encoded"
    if lost is not None:
        raise ModelFileError(f"the model cannot be written as {ending}, which would lose {lost}")
    return text


def from_text(text: str, ending: str) -> onnx.ModelProto:
    """The model in a text; ModelFileError says what is wrong with it."""
    try:
        return FORMATS[ending][1](text)
    except Exception as error:
        raise ModelFileError(f"it is not a model in {ending} format: {_one_line(error)}") from None


def _parse_onnx_text(text: str) -> onnx.ModelProto:
    depth = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[(){}<>]', text):
        depth += (bracket in "({<") - (bracket in ")}>")
        if depth > _MAX_NESTING:
            raise ValueError(f"it is nested more than {_MAX_NESTING} deep")
    return onnx.parser.parse_model(text)


# By ending: the printer, the parser, and whether the format keeps apart how a value is encoded (raw or typed, set to
# its default or not set), which ONNX text does not.
FORMATS: dict[str, tuple[Callable[[onnx.ModelProto], str], Callable[[str], onnx.ModelProto], bool]] = {
    ".onnxtxt": (onnx.printer.to_text, _parse_onnx_text, False),
    ".json": (
        lambda model: json_format.MessageToJson(model, preserving_proto_field_name=True),
        lambda text: json_format.Parse(text, onnx.ModelProto()),
        True,
    ),
    ".textproto": (text_format.MessageToString, lambda text: text_format.Parse(text, onnx.ModelProto()), True),
}


def _difference(a: Message, b: Message, where: str, exact: bool) -> str | None:
    """The path of the first field that differs; unless `exact`, values count and not their encoding."""
    if a.SerializeToString() == b.SerializeToString():
        return None
    if isinstance(a, onnx.TensorProto) and isinstance(b, onnx.TensorProto) and not exact:
        a, b = _plain(a), _plain(b)
    for field in a.DESCRIPTOR.fields:
        x, y = getattr(a, field.name), getattr(b, field.name)
        path = f"{where}.{field.name}" if where else field.name
        if field.message_type is None:
            if x != y:
                return path
        elif not isinstance(x, Message):
            if len(x) != len(y):
                return path
            for i, (one, other) in enumerate(zip(x, y, strict=True)):
                if found := _difference(one, other, f"{path}[{i}]", exact):
                    return found
        elif a.HasField(field.name) != b.HasField(field.name):
            return path
        elif found := _difference(x, y, path, exact):
            return found
    if len(UnknownFieldSet(a)) != len(UnknownFieldSet(b)):
        return f"{where or 'fields'} in part, unknown to this version of onnx"
    for oneof in a.DESCRIPTOR.oneofs:
        if a.WhichOneof(oneof.name) != b.WhichOneof(oneof.name):
            return f"{where}.{oneof.name}"
    return None


def _plain(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor with its elements as raw data."""
    plain = onnx.TensorProto()
    plain.CopyFrom(tensor)
    try:
        elements = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor))
    except Exception:  # A tensor without a value, such as an external one, is compared as it stands.
        return plain
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"):
        plain.ClearField(field)
    plain.MergeFrom(onnx.TensorProto(raw_data=elements.raw_data, string_data=elements.string_data))
    return plain


def _one_line(error: Exception) -> str:
    """What an error says; onnx's parser says it in bytes and several lines."""
    said = error.args[0] if error.args else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
