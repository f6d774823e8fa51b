"""Values that an attribute may hold, by version: the specification lists them in prose, and no checker reads that."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import onnx

_AUTO_PAD = {1: "NOTSET SAME_UPPER SAME_LOWER VALID"}
_DIRECTION = {1: "forward reverse bidirectional"}
_ACTIVATION = {
    1: "Relu Tanh Sigmoid Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign Softplus",
}

# Operator and attribute: the values from each version on.
_VALUES: dict[tuple[str, str], dict[int, str]] = {
    **{
        (op, "auto_pad"): _AUTO_PAD
        for op in ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")
    },
    **{(op, "direction"): _DIRECTION for op in ("RNN", "LSTM", "GRU")},
    **{(op, "activations"): _ACTIVATION for op in ("RNN", "LSTM", "GRU")},
    ("BitShift", "direction"): {11: "LEFT RIGHT"},
    ("Cast", "round_mode"): {24: "up down nearest"},
    ("CastLike", "round_mode"): {24: "up down nearest"},
    ("DepthToSpace", "mode"): {11: "DCR CRD"},
    ("Gelu", "approximate"): {20: "none tanh"},
    ("GridSample", "mode"): {16: "bilinear nearest bicubic", 20: "linear nearest cubic"},
    ("GridSample", "padding_mode"): {16: "zeros border reflection"},
    ("Pad", "mode"): {1: "constant reflect edge", 19: "constant reflect edge wrap"},
    ("Resize", "mode"): {10: "nearest linear bilinear trilinear", 11: "nearest linear cubic"},
    ("Resize", "coordinate_transformation_mode"): {
        11: "half_pixel pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn tf_crop_and_resize",
        13: "half_pixel pytorch_half_pixel align_corners asymmetric tf_crop_and_resize",
        19: "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_crop_and_resize",
    },
    ("Resize", "nearest_mode"): {11: "round_prefer_floor round_prefer_ceil floor ceil"},
    ("RoiAlign", "mode"): {10: "avg max"},
    ("RoiAlign", "coordinate_transformation_mode"): {16: "half_pixel output_half_pixel"},
    ("NegativeLogLikelihoodLoss", "reduction"): {12: "none sum mean"},
    ("Resize", "keep_aspect_ratio_policy"): {18: "stretch not_larger not_smaller"},
    ("ScatterElements", "reduction"): {16: "none add mul", 18: "none add mul max min"},
    ("ScatterND", "reduction"): {16: "none add mul", 18: "none add mul max min"},
    ("SoftmaxCrossEntropyLoss", "reduction"): {12: "none sum mean"},
    ("SpaceToDepth", "mode"): {28: "DCR CRD"},
    ("StringNormalizer", "case_change_action"): {10: "LOWER UPPER NONE"},
    ("TensorScatter", "mode"): {24: "linear circular"},
    ("TfIdfVectorizer", "mode"): {9: "TF IDF TFIDF"},
    ("Upsample", "mode"): {1: "nearest bilinear", 7: "nearest linear bilinear trilinear"},
}


def undefined_values(nodes: Sequence[onnx.NodeProto], opset: int) -> str:
    """A sentence about the first attribute of `nodes`, subgraphs included, that holds no value of that opset, or ""."""
    return next(_violations(nodes, opset), "")


def _violations(nodes: Sequence[onnx.NodeProto], opset: int) -> Iterator[str]:
    for node, attribute in _attributes(nodes):
        versions = _VALUES.get((node.op_type, attribute.name), {})
        version = max((v for v in versions if v <= opset), default=None)
        if version is None:
            continue
        known = versions[version].split()
        if attribute.strings:
            # Names of activations are read without regard to case.
            known = [*known, *map(str.lower, known), *map(str.upper, known)]
        for value in attribute.strings or [attribute.s]:
            if value.decode(errors="replace") not in known:
                yield f"{node.op_type} has no {attribute.name}={value.decode(errors='replace')!r} at opset {opset}"


def counted_from_the_back(nodes: Sequence[onnx.NodeProto], opset: int) -> str:
    """A sentence about the first negative axis of which only a later version tells what it means, or ""."""
    for node, attribute in _attributes(nodes):
        if min((attribute.i, *attribute.ints)) < 0 and _only_from_the_front(node.op_type, attribute.name, opset):
            return f"{node.op_type} counts {attribute.name} from the front alone at opset {opset}"
    return ""


def _attributes(nodes: Sequence[onnx.NodeProto]) -> Iterator[tuple[onnx.NodeProto, onnx.AttributeProto]]:
    """Those of ai.onnx that hold a value of their own."""
    for node in nodes:
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                yield from _attributes(graph.node)
            if node.domain in ("", "ai.onnx") and not attribute.ref_attr_name:
                yield node, attribute


@functools.cache
def _only_from_the_front(op: str, name: str, opset: int) -> bool:
    """Whether the text tells of negative axes only in a later version, and the default is none."""
    if name not in ("axis", "axes", "scan_input_axes", "scan_output_axes") or not onnx.defs.has(op, opset):
        return False
    own = onnx.defs.get_schema(op, opset).attributes.get(name)
    if own is None or own.default_value.i < 0 or _tells_of_the_back(own):
        return False
    later = (onnx.defs.get_schema(op, v).attributes for v in range(opset, onnx.defs.onnx_opset_version() + 1))
    return any(_tells_of_the_back(attributes[name]) for attributes in later if name in attributes)


def _tells_of_the_back(attribute: onnx.defs.OpSchema.Attribute) -> bool:
    text = attribute.description.replace("non-negative", "")
    return re.search(r"[Nn]egative|\[-r|from the back", text) is not None
