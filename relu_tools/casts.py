"""Element types that an older version lacks, by way of one that it has: exactly, or not at all.

An operator is in one of these classes, and a type goes through another where the class makes that exact:

- it moves values, or compares them and gives one of them back: any type that holds every value will do;
- it computes modulo 2^n on integers (Add, Sub, Mul, ...): any wider integer will do, since Cast drops the high bits;
- it rounds its result: computing in a wider float and rounding once is what a float type's operator does.

Of the first two, integers of 64 bits go through double where what they count tells that they are small.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, TensorProto

from relu_tools import magnitudes, schemas
from relu_tools.facts import Scope

MOVES = frozenset(
    "Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity MaxUnpool OneHot Pad Reshape "
    "ReverseSequence Scatter ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile Transpose Trilu "
    "Unsqueeze Upsample Where Shape Size Unique".split()
)
COMPARES = frozenset(
    "Clip Equal Greater GreaterOrEqual GlobalMaxPool Less LessOrEqual Max MaxPool Min Relu ThresholdedRelu "
    "Abs Sign ArgMax ArgMin IsInf IsNaN ReduceMax ReduceMin TopK Hardmax".split()
)
WRAPS = frozenset("Add Sub Mul Div Neg Sum Mod ReduceSum ReduceProd CumSum PRelu".split())
SUMS = frozenset("Add Sub Mul Div Neg Sum".split())  # of those, what magnitudes follows
ROUNDS = frozenset(
    "Abs Acos Acosh Add Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Conv ConvTranspose Cos Cosh "
    "CumSum DeformConv Det Div Einsum Elu Erf Exp Floor GRU Gemm GlobalAveragePool GlobalLpPool GridSample "
    "HardSigmoid HardSwish InstanceNormalization LRN LSTM LeakyRelu Log LogSoftmax LpNormalization LpPool MatMul "
    "MaxRoiPool Mean MeanVarianceNormalization Mish Mod Mul Neg NegativeLogLikelihoodLoss PRelu Pow RNN Reciprocal "
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare RoiAlign Round "
    "Selu Sigmoid Sin Sinh Softmax SoftmaxCrossEntropyLoss Softplus Softsign Sqrt Sub Sum Tan Tanh".split()
)

_T = TensorProto
FLOAT8 = frozenset((_T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ))
# The types that hold every value of the key, those that runtimes have kernels for first.
_HOLDS: dict[int, tuple[int, ...]] = {
    _T.BOOL: (_T.UINT8, _T.INT32, _T.FLOAT),
    _T.INT8: (_T.FLOAT, _T.INT32, _T.INT64, _T.DOUBLE),
    _T.UINT8: (_T.FLOAT, _T.INT32, _T.INT64, _T.DOUBLE),
    _T.INT16: (_T.FLOAT, _T.INT32, _T.INT64, _T.DOUBLE),
    _T.UINT16: (_T.FLOAT, _T.INT32, _T.INT64, _T.DOUBLE),
    _T.INT32: (_T.DOUBLE, _T.INT64),
    _T.UINT32: (_T.DOUBLE, _T.INT64),
    _T.FLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.BFLOAT16: (_T.FLOAT, _T.DOUBLE),
    _T.FLOAT: (_T.DOUBLE,),
    **dict.fromkeys(FLOAT8, (_T.FLOAT, _T.FLOAT16)),
}
_WIDER: dict[int, tuple[int, ...]] = {
    _T.INT8: (_T.INT32, _T.INT64),
    _T.UINT8: (_T.INT32, _T.INT64),
    _T.INT16: (_T.INT32, _T.INT64),
    _T.UINT16: (_T.INT32, _T.INT64),
    _T.INT32: (_T.INT64,),
    _T.UINT32: (_T.INT64,),
}
_ROUNDED: dict[int, tuple[int, ...]] = {_T.BFLOAT16: (_T.FLOAT, _T.DOUBLE), _T.FLOAT16: (_T.FLOAT, _T.DOUBLE)}


def through(node: NodeProto, dtype: int, admitted: frozenset[str], scope: Scope) -> tuple[int, str] | None:
    """The type to compute in for a type that is not admitted, and what that is: "exact" or "rounding"; None if none."""
    op = node.op_type
    if (wide := exactly(op, dtype, admitted)) is not None:
        return wide, "exact"
    if op in ROUNDS and (wide := _first(_ROUNDED, dtype, admitted)) is not None:
        return wide, "rounding"
    of_64 = op in MOVES | COMPARES | SUMS and dtype in (_T.INT64, _T.UINT64)
    if of_64 and schemas.tensor_text(_T.DOUBLE) in admitted and magnitudes.in_double(scope, node):
        return _T.DOUBLE, "exact"
    return None


def exactly(op: str, dtype: int, admitted: frozenset[str]) -> int | None:
    """The type to compute in where that is exact for all values of a type that is not admitted."""
    tables = ([_HOLDS] if op in MOVES | COMPARES else []) + ([_WIDER] if op in WRAPS else [])
    return next((wide for table in tables if (wide := _first(table, dtype, admitted)) is not None), None)


def _first(table: Mapping[int, tuple[int, ...]], dtype: int, admitted: frozenset[str]) -> int | None:
    return next((wide for wide in table.get(dtype, ()) if schemas.tensor_text(wide) in admitted), None)
