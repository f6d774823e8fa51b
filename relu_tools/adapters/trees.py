"""Ensembles of decision trees as ai.onnx.ml writes them: up to version 3 as rows of nodes, in 5 as nodes and leaves."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import numpy_helper

from relu_tools import schemas
from relu_tools.irversion import ML
from relu_tools.report import RefusedError

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER"]
LEAF = "LEAF"
AGGREGATES = ["AVERAGE", "SUM", "MIN", "MAX"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


@dataclasses.dataclass(eq=False)
class Node:
    """A node of a tree; its branches are nodes, a leaf has none.

    `value` is the threshold, or the members of a set; `votes` of a leaf are (target, weight).
    """

    mode: str
    feature: int = 0
    value: Any = 0.0
    missing: int = 0
    true: Any = None
    false: Any = None
    votes: Sequence[tuple[int, float]] = ()


Trees = list[Node]  # by their roots


def walk(root: Node) -> Iterator[Node]:
    """The nodes of a tree, a node before its branches, the true branch first."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if node.mode != LEAF:
            waiting += [node.false, node.true]


def leaves(trees: Iterable[Node]) -> list[Node]:
    return [node for tree in trees for node in walk(tree) if node.mode == LEAF]


def voting(trees: Trees, votes: Callable[[Node], Sequence[tuple[int, float]]]) -> Trees:
    """The trees with other votes at the leaves."""

    def copy(node: Node) -> Node:
        if node.mode == LEAF:
            return Node(LEAF, votes=votes(node))
        return dataclasses.replace(node, true=copy(node.true), false=copy(node.false))

    return [copy(tree) for tree in trees]


# --- reading -------------------------------------------------------------------------------
def array(tensor: Any) -> np.ndarray:
    """The value of a tensor attribute, refused where it is a reference to the function's own."""
    if isinstance(tensor, schemas.AttributeReference):
        tensor.unknown()
    return numpy_helper.to_array(tensor)


def numbers(attributes: Mapping[str, Any], name: str) -> np.ndarray:
    """An attribute that may be written as a tensor of doubles instead; empty where neither is there."""
    tensor = attributes[f"{name}_as_tensor"]
    if tensor is not None:
        return array(tensor).reshape(-1)
    return np.array(attributes[name] or [], np.float32)


def read_rows(attributes: Mapping[str, Any], votes: str) -> Trees:
    """The trees of TreeEnsembleClassifier (`votes` is "class") and TreeEnsembleRegressor ("target")."""
    keys = list(zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True))
    missing = attributes["nodes_missing_value_tracks_true"] or [0] * len(keys)
    values = numbers(attributes, "nodes_values")
    rows = zip(attributes["nodes_modes"], attributes["nodes_featureids"], values.tolist(), missing, strict=True)
    nodes = {key: Node(*row) for key, row in zip(keys, rows, strict=True)}
    parents = dict.fromkeys(nodes, 0)
    branches = zip(keys, attributes["nodes_truenodeids"], attributes["nodes_falsenodeids"], strict=True)
    for key, true, false in branches:
        node = nodes[key]
        if node.mode != LEAF:
            node.true, node.false = nodes[key[0], true], nodes[key[0], false]
            parents[key[0], true] += 1
            parents[key[0], false] += 1
    voters = zip(attributes[f"{votes}_treeids"], attributes[f"{votes}_nodeids"], strict=True)
    weights = numbers(attributes, f"{votes}_weights")
    for key, target, weight in zip(voters, attributes[f"{votes}_ids"], weights.tolist(), strict=True):
        nodes[key].votes = [*nodes[key].votes, (target, weight)]
    roots = [key for key, count in parents.items() if not count]
    if len(roots) != len({tree for tree, _ in roots}) or max(parents.values()) > 1:
        raise RefusedError("its nodes are no trees: one of them has several roots, or a node several parents")
    return [nodes[key] for key in roots]


def read_branches(attributes: Mapping[str, Any]) -> Trees:
    """The trees of TreeEnsemble."""
    splits, modes, weights = (
        array(attributes[name]).tolist() for name in ("nodes_splits", "nodes_modes", "leaf_weights")
    )
    missing = attributes["nodes_missing_value_tracks_true"] or [0] * len(modes)
    sets = iter(_members(attributes["membership_values"]))
    rows = zip(modes, attributes["nodes_featureids"], splits, missing, strict=True)
    nodes = [Node(MODES[m], f, next(sets) if m == 6 else split, flag) for m, f, split, flag in rows]
    votes = list(zip(attributes["leaf_targetids"], weights, strict=True))
    parents = [0] * len(nodes)
    for branch in ("true", "false"):
        leafs, ids = attributes[f"nodes_{branch}leafs"], attributes[f"nodes_{branch}nodeids"]
        for node, leaf, index in zip(nodes, leafs, ids, strict=True):
            setattr(node, branch, Node(LEAF, votes=[votes[index]]) if leaf else nodes[index])
            if not leaf:
                parents[index] += 1
    roots = attributes["tree_roots"]
    if max(parents, default=0) > 1 or any(parents[root] for root in roots):
        raise RefusedError("its nodes are no trees: a node has several parents")
    alone = [attributes["nodes_truenodeids"][k] == attributes["nodes_falsenodeids"][k] for k in roots]
    ends = [nodes[k].true.mode == nodes[k].false.mode == LEAF for k in roots]
    return [nodes[k].true if a and e else nodes[k] for k, a, e in zip(roots, alone, ends, strict=True)]


def _members(values: Any) -> list[list[float]]:
    """The sets of the nodes that ask for membership, which NaN ends."""
    found: list[list[float]] = [[]]
    for value in [] if values is None else array(values).tolist():
        if np.isnan(value):
            found.append([])
        else:
            found[-1].append(value)
    return found


# --- writing -------------------------------------------------------------------------------
def rows(trees: Trees, votes: str, dtype: Any) -> dict[str, Any]:
    """The attributes of TreeEnsembleClassifier or TreeEnsembleRegressor; numbers as tensors where they are doubles."""
    columns: dict[str, list] = {f"nodes_{name}": [] for name in (*_NODE, "values")}
    columns |= {f"{votes}_{name}": [] for name in (*_VOTE, "weights")}
    for tree, root in enumerate(trees):
        nodes = list(walk(root))
        place = {node: k for k, node in enumerate(nodes)}
        for k, node in enumerate(nodes):
            ids = (0, 0) if node.mode == LEAF else (place[node.true], place[node.false])
            row = (tree, k, node.mode, node.feature, *ids, node.missing, node.value)
            for name, value in zip((*_NODE, "values"), row, strict=True):
                columns[f"nodes_{name}"].append(value)
            for vote in node.votes:
                for name, value in zip((*_VOTE, "weights"), (tree, k, *vote), strict=True):
                    columns[f"{votes}_{name}"].append(value)
    if dtype == np.float64:
        for name in ("nodes_values", f"{votes}_weights"):
            columns[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(columns.pop(name)))
    return columns


_NODE = ("treeids", "nodeids", "modes", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
_VOTE = ("treeids", "nodeids", "ids")


def branches(trees: Trees, dtype: Any) -> dict[str, Any]:
    """The attributes of TreeEnsemble, of trees whose leaves have a vote each."""
    inner: list[Node] = []
    roots: list[int] = []
    ends: Trees = []
    for root in trees:
        roots.append(len(inner))
        # A tree that is a leaf is written as a node both of whose branches are that leaf.
        inner += [n for n in walk(root) if n.mode != LEAF] or [Node(MODES[0], true=root, false=root)]
    place = {node: k for k, node in enumerate(inner)}
    for node in inner:
        for branch in (node.true, node.false):
            if branch.mode == LEAF and branch not in place:
                place[branch] = len(ends)
                ends.append(branch)
    tensor = numpy_helper.from_array
    return {
        "tree_roots": roots,
        "nodes_featureids": [node.feature for node in inner],
        "nodes_splits": tensor(np.array([node.value for node in inner], dtype)),
        "nodes_modes": tensor(np.array([MODES.index(node.mode) for node in inner], np.uint8)),
        "nodes_truenodeids": [place[node.true] for node in inner],
        "nodes_falsenodeids": [place[node.false] for node in inner],
        "nodes_trueleafs": [int(node.true.mode == LEAF) for node in inner],
        "nodes_falseleafs": [int(node.false.mode == LEAF) for node in inner],
        "nodes_missing_value_tracks_true": [node.missing for node in inner] if any(n.missing for n in inner) else None,
        "leaf_targetids": [leaf.votes[0][0] for leaf in ends],
        "leaf_weights": tensor(np.array([leaf.votes[0][1] for leaf in ends], dtype)),
    }


def one_vote(trees: Trees, *, adds: bool) -> Trees:
    """Trees whose leaves have a vote each: as many copies of a tree as its leaves have votes.

    A leaf with fewer ones votes with 0 where votes are added, else once more with its first.
    """
    out: Trees = []
    for tree in trees:
        votes = [leaf.votes for leaf in leaves([tree])]
        if not adds and not all(votes):
            raise RefusedError("a leaf without a vote has no share in the least or the greatest one")
        for k in range(max(1, *map(len, votes))):
            out += voting([tree], functools.partial(_vote, k=k, adds=adds))
    return out


def _vote(leaf: Node, k: int, adds: bool) -> list[tuple[int, float]]:
    votes = leaf.votes
    if k < len(votes):
        return [votes[k]]
    return [(votes[0][0] if votes else 0, 0.0) if adds else votes[0]]


# --- computing what the older form does not hold ---------------------------------------------
def decided(op, X: str, trees: Trees, asked: Callable[[Node], bool]) -> tuple[str, Trees]:
    """Lets a column before those of X tell what each node of a kind asks, and the nodes read it: 1 where it holds."""
    nodes = sorted((n for tree in trees for n in walk(tree) if n.mode != LEAF and asked(n)), key=lambda n: n.mode)
    columns = [_column(op, X, list(group)) for _, group in itertools.groupby(nodes, key=lambda n: n.mode)]
    place = {node: k for k, node in enumerate(nodes)}

    def copy(node: Node) -> Node:
        if node.mode == LEAF:
            return node
        true, false = copy(node.true), copy(node.false)
        if node in place:
            return Node("BRANCH_GT", place[node], 0.5, 0, true, false)
        return dataclasses.replace(node, feature=node.feature + len(nodes), true=true, false=false)

    if not nodes:
        return X, trees
    trees = [copy(tree) for tree in trees]
    others = any(n.mode != LEAF and n.feature >= len(nodes) for tree in trees for n in walk(tree))
    return op.Concat(*columns, *[X] * others, axis=1), trees


def _column(op, X: str, nodes: list[Node]) -> str:
    """A column for each of some nodes of one mode: 1 where what it asks of X holds, else 0."""
    x = op.Gather(X, np.array([node.feature for node in nodes]), axis=1)
    dtype = op.like(0, X).dtype
    if nodes[0].mode == "BRANCH_MEMBER":
        longest = max(1, *(len(node.value) for node in nodes))
        members = [node.value + [np.nan] * (longest - len(node.value)) for node in nodes]
        equal = op.Equal(op.Unsqueeze(x, np.array([2])), np.array(members, dtype))
        holds = op.Cast(op.ReduceMax(op.Cast(equal, to=T.FLOAT), axes=[2], keepdims=0), to=T.BOOL)
    else:
        holds = _COMPARES[nodes[0].mode](op, x, np.array([node.value for node in nodes], dtype))
    if any(node.missing for node in nodes):
        flags = np.array([bool(node.missing) for node in nodes])
        holds = op.Or(holds, op.And(op.Not(op.Equal(x, x)), flags))
    return op.Cast(holds, to=op.dtype(X))


_COMPARES: dict[str, Callable] = {
    "BRANCH_LEQ": lambda op, x, y: op.LessOrEqual(x, y),
    "BRANCH_LT": lambda op, x, y: op.Less(x, y),
    "BRANCH_GTE": lambda op, x, y: op.GreaterOrEqual(x, y),
    "BRANCH_GT": lambda op, x, y: op.Greater(x, y),
    "BRANCH_EQ": lambda op, x, y: op.Equal(x, y),
    "BRANCH_NEQ": lambda op, x, y: op.Not(op.Equal(x, y)),
}


def gathered(op, X: str, trees: Trees, targets: int, aggregate: str, dtype: Any) -> str:
    """What the trees give, in double: a regressor finds the leaf of each tree, and a table has their weights."""
    ends = leaves(trees)
    place = {leaf: k for k, leaf in enumerate(ends)}
    # A float numbers them: more than 2^24 leaves do not fit into a protobuf.
    numbered: Trees = []
    for k, tree in enumerate(trees):
        numbered += voting([tree], functools.partial(_number, k=k, place=place))
    reached = op.TreeEnsembleRegressor(X, n_targets=len(trees), domain=ML, **rows(numbered, "target", dtype))
    op.tell(reached, T.FLOAT, [None, len(trees)])
    if aggregate in ("MIN", "MAX") and targets > 1:
        raise RefusedError(f"doubles of several targets under {aggregate} have no older form")
    table = np.zeros((len(ends), targets))
    for leaf, k in place.items():
        for target, weight in leaf.votes:
            table[k, target] += weight
    weights = op.Gather(table, op.count(op.Cast(reached, to=T.INT64)), axis=0)
    if aggregate in ("MIN", "MAX"):
        reduce = op.ReduceMin if aggregate == "MIN" else op.ReduceMax
        return reduce(weights, axes=[1], keepdims=0)
    total = op.ReduceSum(weights, np.array([1]), keepdims=0)
    return op.Div(total, np.float64(len(trees))) if aggregate == "AVERAGE" else total


def _number(leaf: Node, k: int, place: Mapping[Node, int]) -> list[tuple[int, float]]:
    return [(k, float(place[leaf]))]
