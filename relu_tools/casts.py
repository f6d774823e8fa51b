"""Element types that an older version lacks, by way of one that it has: exactly, or not at all.

An operator is in one of these classes, and a type goes through another where the class makes that exact:

- it moves values, or compares them and gives one of them back: any type that holds every value will do;
- it computes modulo 2^n on integers (Add, Sub, Mul, ...): any wider integer will do, since Cast drops the high bits;
- it rounds its result: computing in a wider float and rounding once is what a float type's operator does.
"""

from __future__ import annotations

from onnx import TensorProto

from relu_tools import schemas

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
_HOLDS = {
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
_WIDER = {
    _T.INT8: (_T.INT32, _T.INT64),
    _T.UINT8: (_T.INT32, _T.INT64),
    _T.INT16: (_T.INT32, _T.INT64),
    _T.UINT16: (_T.INT32, _T.INT64),
    _T.INT32: (_T.INT64,),
    _T.UINT32: (_T.INT64,),
}
_ROUNDED = {_T.BFLOAT16: (_T.FLOAT, _T.DOUBLE), _T.FLOAT16: (_T.FLOAT, _T.DOUBLE)}


def through(op: str, dtype: int, admitted: frozenset[str]) -> tuple[int, str] | None:
    """The type to compute in for a type that is not admitted, and what that is: "exact" or "rounding"; None if none."""
    routes = []
    if op in MOVES or op in COMPARES:
        routes.append((_HOLDS, "exact"))
    if op in WRAPS:
        routes.append((_WIDER, "exact"))
    if op in ROUNDS:
        routes.append((_ROUNDED, "rounding"))
    for table, accuracy in routes:
        for wide in table.get(dtype, ()):
            if schemas.tensor_text(wide) in admitted:
                return wide, accuracy
    return None
