"""Strings that an attribute may hold, by version: the specification lists them in prose, and no checker reads that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

_AUTO_PAD = {1: "NOTSET SAME_UPPER SAME_LOWER VALID"}
_DIRECTION = {1: "forward reverse bidirectional"}

# Operator and attribute: the values from each version on.
_VALUES: dict[tuple[str, str], dict[int, str]] = {
    **{
        (op, "auto_pad"): _AUTO_PAD
        for op in ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")
    },
    **{(op, "direction"): _DIRECTION for op in ("RNN", "LSTM", "GRU")},
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
    ("TensorScatter", "mode"): {24: "linear circular"},
    ("TfIdfVectorizer", "mode"): {9: "TF IDF TFIDF"},
    ("Upsample", "mode"): {1: "nearest bilinear", 7: "nearest linear bilinear trilinear"},
}


def undefined_values(nodes: Sequence[onnx.NodeProto], opset: int) -> str:
    """A sentence about the first attribute of `nodes`, subgraphs included, that holds no value of that opset, or ""."""
    return next(_violations(nodes, opset), "")


def _violations(nodes: Sequence[onnx.NodeProto], opset: int) -> Iterator[str]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _violations(attribute.g.node, opset)
            versions = _VALUES.get((node.op_type, attribute.name)) if node.domain in ("", "ai.onnx") else None
            version = max((v for v in versions or () if v <= opset), default=None)
            if versions is None or version is None or attribute.ref_attr_name:
                continue
            value = attribute.s.decode(errors="replace")
            if value not in versions[version].split():
                yield f"{node.op_type} has no {attribute.name}={value!r} at opset {opset}"
