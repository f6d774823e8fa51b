"""Every body has the inputs, attributes and defaults that onnxruntime's own schema of the operator tells."""

from __future__ import annotations

import inspect

import onnx
import onnxruntime.capi.onnxruntime_pybind11_state as state
import pytest

from relu_tools import bodies

SCHEMAS = {(schema.domain, schema.name): schema for schema in state.get_all_operator_schema()}
# A release tells the schemas of the operators that it has; those of the blocked layout are refused one by one.
KNOWN = [key for key in bodies.TABLE if key in SCHEMAS and key[0] != bodies.BLOCKS]


def option(parameter):
    return str(parameter.option).rpartition(".")[2]


@pytest.mark.parametrize("key", [key for key in bodies.TABLE if key[0] != bodies.BLOCKS], ids="::".join)
def test_each_has_its_documentation(key):
    body = bodies.Bodies().find(*key)
    assert inspect.getdoc(body.function), key
    assert body.op == key[1]


@pytest.mark.parametrize("key", KNOWN, ids="::".join)
def test_inputs(key):
    schema, body = SCHEMAS[key], bodies.Bodies().find(*key)
    names = [formal.name.lower() for formal in schema.inputs]
    if not body.traced:
        assert [name.lower() for name in body.proto.input] == names
        return
    formals = body.formals
    fixed = [name for name, formal in zip(names, schema.inputs, strict=True) if option(formal) != "Variadic"]
    assert [name.lower() for name in formals.inputs] == fixed
    assert formals.more_inputs == (fixed != names)
    optional = {name for name, formal in zip(names, schema.inputs, strict=True) if option(formal) == "Optional"}
    assert not optional & {name.lower() for name in formals.required}


@pytest.mark.parametrize("key", KNOWN, ids="::".join)
def test_attributes(key):
    schema, body = SCHEMAS[key], bodies.Bodies().find(*key)
    if not body.traced:
        proto = body.proto
        defaults = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute_proto}
        names, required = {*proto.attribute, *defaults}, set(proto.attribute)
    else:
        parameters = inspect.signature(body.function.func).parameters
        names, required = set(body.formals.attributes), set(body.formals.required_attributes)
        defaults = {name: parameters[name].default for name in names - required}
    wanted = {name: attribute for name, attribute in schema.attributes.items()}
    assert names <= set(wanted)
    if not (body.traced and body.formals.more_attributes):
        assert names == set(wanted)
    for name in names:
        default = onnx.AttributeProto.FromString(wanted[name]._default_value)
        if default.name and name in defaults:
            value = onnx.helper.get_attribute_value(default)
            if isinstance(value, bytes):
                assert defaults[name] == value.decode(), name
            else:
                assert defaults[name] == pytest.approx(value, rel=1e-6), name
        elif wanted[name].required:
            assert name in required
