"""Steps of the operators in ONNX's defs/traditionalml, domain ai.onnx.ml: LabelEncoder and the ensembles of trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from relu_tools.adapters import KEEP, adapter, same, trees
from relu_tools.irversion import ML
from relu_tools.report import RefusedError

same("TreeEnsembleClassifier TreeEnsembleRegressor", 1, 3, 5, domain=ML)
same("LabelEncoder", 2, 4, domain=ML)

DEFAULTS = {"string": "_Unused", "int64": -1, "float": -0.0}


# --- LabelEncoder --------------------------------------------------------------------------
@adapter("LabelEncoder", 1, 2, domain=ML)
def listed(op, X, *, classes_strings, default_string, default_int64):
    """1 maps between strings and their places in one list, 2 from a list of keys to a list of values.

    The places are written out. A string that is there twice has no one place.
    """
    places = list(range(len(classes_strings)))
    if op.dtype(X) != T.STRING:
        return op.again(X, keys_int64s=places, values_strings=classes_strings, default_string=default_string)
    if len(set(classes_strings)) < len(classes_strings):
        raise RefusedError("a string is in its list twice, and 1 does not say which place counts")
    return op.again(X, keys_strings=classes_strings, values_int64s=places, default_int64=default_int64)


@adapter("LabelEncoder", 2, 4, domain=ML)
def last_key(op, X, **attributes):
    """4 says that of a repeated key the last one counts, and that NaN is found whatever its bits are.

    2 is silent on repeated keys, and finds NaN by its bits: both are refused.
    """
    _plain_keys(attributes)
    return KEEP


@adapter("LabelEncoder", 4, 2, domain=ML)
def typed_lists(op, X, *, keys_tensor, values_tensor, default_tensor, **attributes):
    """4 takes keys and values as tensors too, of more types, and finds NaN whatever its bits are.

    16- and 32-bit integers go through int64; doubles and NaN are compared, values in double looked up by their place.
    Repeated keys are refused.
    """
    keys, values, default = _mapping(
        attributes | {"keys_tensor": keys_tensor, "values_tensor": values_tensor, "default_tensor": default_tensor}
    )
    mapping = dict(zip(keys, values, strict=True))
    nan = any(key != key for key in keys)
    if len(mapping) < len(keys):
        raise RefusedError("a key is there twice: the specification takes its last value, runtimes the first")
    if keys_tensor is None and values_tensor is None and not nan:
        return KEEP
    dtype = values_tensor.data_type if values_tensor is not None else None
    if op.dtype(X) == T.DOUBLE or nan:
        return _table(op, _compared(op, X, list(mapping)), mapping.values(), default, dtype)
    X = op.Cast(X, to=T.INT64) if op.dtype(X) in (T.INT16, T.INT32) else X
    if dtype == T.DOUBLE:
        places = range(1, len(mapping) + 1)
        return _table(op, op.again(X, **_lists(mapping, places, 0)), mapping.values(), default, dtype)
    found = op.again(X, **_lists(mapping, list(mapping.values()), default))
    return op.Cast(found, to=dtype) if dtype in (T.INT16, T.INT32) else found


@adapter("LabelEncoder", 2, 1, domain=ML)
def categories(op, X, **attributes):
    """2 maps between strings, integers and floats as its lists say, 1 only between strings and their places.

    CategoryMapper maps between strings and any integers; other values are looked up by their place, integers as
    keys are mapped to strings first, and floats are compared.
    """
    _plain_keys(attributes)
    keys, values, default = _mapping(attributes)
    if op.dtype(X) == T.FLOAT:
        return _table(op, _compared(op, X, keys), values, default, None)
    if {type(keys[0]), type(values[0])} == {int, str}:
        return _mapped(op, X, keys, values, default)
    if op.dtype(X) == T.INT64:
        names = [f"{k}" for k in range(len(keys))]
        X, keys = _mapped(op, X, keys, names, ""), names
    if isinstance(values[0], int):
        return _mapped(op, X, keys, values, default)
    return _table(op, _mapped(op, X, keys, list(range(1, len(keys) + 1)), 0), values, default, None)


def _plain_keys(attributes: dict[str, Any]) -> None:
    """Refuses keys that LabelEncoder 2 may or may not find."""
    keys, _, _ = _mapping(attributes)
    if len(set(keys)) < len(keys):
        raise RefusedError("a key is there twice, and before 4 nothing says which value counts")
    if any(key != key for key in keys):
        raise RefusedError("a key is NaN, and before 4 only one of the same bits is found")


def _mapping(attributes: dict[str, Any]) -> tuple[list, list, Any]:
    """A LabelEncoder's keys, values and default."""

    def read(tensor) -> list:
        return trees.array(tensor).reshape(-1).tolist()

    lists = {}
    for part in ("keys", "values"):
        if attributes.get(f"{part}_tensor") is not None:
            lists[part] = "tensor", read(attributes[f"{part}_tensor"])
        else:
            lists[part] = next(
                (kind, attributes[f"{part}_{kind}s"]) for kind in DEFAULTS if attributes[f"{part}_{kind}s"] is not None
            )
    kind, values = lists["values"]
    if attributes.get("default_tensor") is not None:
        (default,) = read(attributes["default_tensor"])
    elif kind == "tensor":
        default = {str: "_Unused", int: -1, float: -0.0}[type(values[0])]
    else:
        default = attributes[f"default_{kind}"]
    return lists["keys"][1], values, default


def _lists(keys: Sequence, values: Sequence, default: Any) -> dict[str, Any]:
    """The attributes of LabelEncoder 2."""
    kinds = {str: "string", int: "int64", float: "float"}
    k, v = (kinds[type(next(iter(part)))] for part in (keys, values))
    return {f"keys_{k}s": list(keys), f"values_{v}s": list(values), f"default_{v}": default}


def _mapped(op, X, keys, values, default):
    """CategoryMapper from strings to integers or back."""
    strings, numbers = (keys, values) if isinstance(keys[0], str) else (values, keys)
    name = "default_int64" if isinstance(keys[0], str) else "default_string"
    return op.CategoryMapper(X, cats_strings=strings, cats_int64s=numbers, domain=ML, **{name: default})


def _compared(op, X, keys: list) -> str:
    """The place of each element of X among the keys, counted from 1; 0 where it is none of them."""
    flat = op.Reshape(X, np.array([-1, 1]))
    is_key = op.Equal(flat, np.array([keys], op.like(0, X).dtype))
    if np.isnan(keys).any():
        is_key = op.Or(is_key, op.And(op.Not(op.Equal(flat, flat)), np.isnan(keys)))
    places = op.Mul(op.Cast(is_key, to=T.FLOAT), np.arange(1, len(keys) + 1, dtype=np.float32))
    return op.Reshape(op.Cast(op.ReduceMax(places, axes=[1], keepdims=0), to=T.INT64), op.Shape(X))


def _table(op, places: str, values: Iterable, default: Any, dtype: int | None) -> str:
    """The values at places counted from 1, the default at 0; of an element type, or of that which lists have."""
    dtype = dtype or {str: T.STRING, int: T.INT64, float: T.FLOAT}[type(default)]
    return op.Gather(np.array([default, *values], helper.tensor_dtype_to_np_dtype(dtype)), op.count(places))


# --- trees ---------------------------------------------------------------------------------
@adapter("TreeEnsembleRegressor TreeEnsembleClassifier", 3, 1, domain=ML)
def lists_of_floats(op, X, **attributes):
    """3 can hold its numbers as tensors of doubles.

    Those that floats hold become lists. Else comparisons in double tell which branch to take, the older operator
    finds the leaves, and a table of doubles has their weights.
    """
    tensors = {name: value for name, value in attributes.items() if name.endswith("_as_tensor")}
    lists = {name[: -len("_as_tensor")]: trees.array(t) for name, t in tensors.items() if t is not None}
    if not lists:
        return KEEP
    if all((v == v.astype(np.float32)).all() for name, v in lists.items() if name != "nodes_hitrates"):
        kept = {name: value for name, value in attributes.items() if name not in tensors}
        return op.again(X, outputs=len(op.outputs), **kept | lists)
    op.rounds()
    votes = "class" if op.type == "TreeEnsembleClassifier" else "target"
    asked, forest = trees.decided(op, _cast(op, X, T.DOUBLE), trees.read_rows(attributes, votes), lambda node: True)
    asked = _cast(op, asked, T.FLOAT)

    def scores(targets, aggregate, base, post):
        if post != "NONE":
            raise RefusedError(f"before 3 its numbers are floats, and {post} has no other form for doubles")
        given = trees.gathered(op, asked, forest, targets, aggregate, np.float32)
        return op.Add(given, np.array([base], np.float64)) if len(base) else given

    return _decided(op, attributes, forest, scores)


@adapter("TreeEnsembleRegressor TreeEnsembleClassifier", 3, 5, accuracy="rounding", domain=ML)
def as_ensemble(op, X, **attributes):
    """5 deprecates them in favour of TreeEnsemble, whose leaves have a vote each and whose result has X's type.

    A tree is there once for each vote of its leaves, base values are added by trees of one leaf, and ArgMax finds the
    class. Refused are classes that the specification leaves open, and a transform of what is added afterwards.
    """
    votes = "class" if op.type == "TreeEnsembleClassifier" else "target"
    forest = trees.read_rows(attributes, votes)
    given = [trees.numbers(attributes, name) for name in ("nodes_values", f"{votes}_weights", "base_values")]
    wide = op.dtype(X) == T.DOUBLE or any((v != v.astype(np.float32)).any() for v in given)
    X = _cast(op, X, T.DOUBLE if wide else T.FLOAT)
    dtype = np.float64 if wide else np.float32

    def scores(targets, aggregate, base, post):
        single = trees.one_vote(forest, adds=aggregate in ("SUM", "AVERAGE"))
        if aggregate == "SUM":
            single += [trees.Node(trees.LEAF, votes=[vote]) for vote in enumerate(base)]
            return ensemble(single, targets, aggregate, post)
        repeated = aggregate == "AVERAGE" and len(single) > len(forest)
        if post != "NONE" and (repeated or len(base)):
            raise RefusedError(
                f"TreeEnsemble has no base values, and {post} takes in what {aggregate} gives before them"
            )
        y = ensemble(single, targets, "SUM" if repeated else aggregate, post)
        y = op.Div(y, dtype(len(forest))) if repeated else y
        return op.Add(y, np.array([base], dtype)) if len(base) else y

    def ensemble(single, targets, aggregate, post):
        codes = {
            "aggregate_function": trees.AGGREGATES.index(aggregate),
            "post_transform": trees.TRANSFORMS.index(post),
        }
        return op.TreeEnsemble(X, n_targets=targets, domain=ML, **codes, **trees.branches(single, dtype))

    return _decided(op, attributes, forest, scores)


def _cast(op, x: str, dtype: int) -> str:
    return x if op.dtype(x) == dtype else op.Cast(x, to=dtype)


def _decided(op, attributes: dict[str, Any], forest: trees.Trees, scores: Callable) -> str | tuple[str, str]:
    """A regressor's output or a classifier's two, from the sums that `scores(targets, aggregate, base, post)` makes."""
    base, post = trees.numbers(attributes, "base_values"), attributes["post_transform"]
    if op.type == "TreeEnsembleClassifier":
        return _classes(op, attributes, forest, scores, base, post)
    targets, aggregate = attributes["n_targets"] or 1 + max(attributes["target_ids"]), attributes["aggregate_function"]
    if len(base) not in (0, targets) or (len(base) > 1 and not _all_vote(forest, targets)):
        raise RefusedError(
            "the specification does not say which base value a target has, or if it has one without votes"
        )
    if post in ("SOFTMAX", "LOGISTIC") and targets == 1:
        raise RefusedError(f"runtimes leave {post} out where there is one target, against the specification")
    return _cast(op, _transformed(op, post, lambda post: scores(targets, aggregate, base, post)), T.FLOAT)


def _transformed(op, post: str, scores: Callable[[str], str]) -> str:
    # Runtimes take TreeEnsemble's codes for these two the other way round than the specification.
    if post in ("SOFTMAX", "LOGISTIC"):
        return (op.Softmax if post == "SOFTMAX" else op.Sigmoid)(scores("NONE"))
    return scores(post)


def _classes(op, attributes, forest, scores, base, post) -> tuple[str, str]:
    labels = attributes["classlabels_strings"] or attributes["classlabels_int64s"]
    ends = [leaf.votes for leaf in trees.leaves(forest)]
    negative = any(weight < 0 for votes in ends for _, weight in votes)
    voted = {target for votes in ends for target, _ in votes}
    if len(labels) > 2 and len(base) in (0, len(labels)):
        if not len(base) and negative and not _all_vote(forest, len(labels)):
            raise RefusedError("whether a class without a vote can be the top one, the specification does not say")
        sums = scores(len(labels), "SUM", base, "NONE")
        top = op.ArgMax(sums, axis=1, keepdims=0)
        shown = _transformed(op, post, lambda p: sums if p == "NONE" else scores(len(labels), "SUM", base, p))
    elif len(labels) == 2 and voted == {0} and len(base) < 2 and (post, negative) in BINARY:
        sums = scores(1, "SUM", base, "NONE")
        one, none = op.like(1, sums), op.like(0, sums)
        top = op.Greater(sums, none if post == "LOGISTIC" else op.like(0.5, sums))
        top = op.Reshape(op.Cast(top, to=T.INT64), np.array([-1]))
        pair = (op.Sub(none, sums), sums) if post == "LOGISTIC" else (op.Sub(one, sums), sums)
        shown = op.Concat(*pair, axis=1)
        shown = op.Sigmoid(shown) if post == "LOGISTIC" else shown
    else:
        raise RefusedError("two classes like these: the specification does not say what their scores are")
    names = np.array(labels, np.int64 if isinstance(labels[0], int) else np.object_)
    return op.Gather(names, op.count(top)), _cast(op, shown, T.FLOAT)


# The transforms of votes for one of two classes, and whether votes are negative, for which all agree on the scores.
BINARY = (("NONE", False), ("LOGISTIC", True))


def _all_vote(forest: trees.Trees, classes: int) -> bool:
    """Whether each class has a tree all leaves of which vote for it."""
    always: set[int] = set()
    for tree in forest:
        always |= set.intersection(*({target for target, _ in leaf.votes} for leaf in trees.leaves([tree])))
    return len(always) == classes


@adapter("TreeEnsemble", 5, None, domain=ML)
def as_regressor(op, X, **attributes):
    """5 is its first version; it can ask for membership of a set, and computes in half or double.

    TreeEnsembleRegressor gives the same of floats. Membership is told by columns of its own; half goes through
    float; for doubles the regressor finds the leaves, and a table has their weights.
    """
    forest = trees.read_branches(attributes)
    X, forest = trees.decided(op, X, forest, lambda node: node.mode == "BRANCH_MEMBER")
    aggregate, post = (
        names[attributes[name]]
        for names, name in ((trees.AGGREGATES, "aggregate_function"), (trees.TRANSFORMS, "post_transform"))
    )
    targets = attributes["n_targets"] or 1 + max(attributes["leaf_targetids"])
    if post in ("SOFTMAX", "LOGISTIC"):
        raise RefusedError("runtimes take post_transform 1 and 2 the other way round than the specification")
    if op.dtype(X) != T.FLOAT:
        op.rounds()
    if op.dtype(X) == T.DOUBLE:
        if post != "NONE":
            raise RefusedError(f"before 5 the result is a float, and {post} has no other form for doubles")
        return trees.gathered(op, X, forest, targets, aggregate, np.float64)
    names = {"aggregate_function": aggregate, "post_transform": post, "n_targets": targets}
    floats = trees.rows(forest, "target", np.float32)
    return _cast(op, op.TreeEnsembleRegressor(_cast(op, X, T.FLOAT), domain=ML, **names, **floats), op.dtype(X))
