"""Sequences, sets and text."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun

from .registry import demand, meaning


@meaning("SequenceInsert", 11)
class SequenceInsert(OpRun):
    """A position below 0 counts from the back; without one it is the end."""

    op_domain = ""

    def _run(self, sequence, value, position=None):
        place = len(sequence) if position is None else int(np.asarray(position).item())
        demand(-len(sequence) <= place <= len(sequence), f"position {place} in a sequence of {len(sequence)}")
        return ([*sequence[:place], value, *sequence[place:]],)


@meaning("Unique", 11)
def _unique(node, x, *, axis=None, sorted):
    """The first of equals, in the order of their values or as they come."""
    _, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    order = np.arange(len(first)) if sorted else np.argsort(first)
    place = np.argsort(order)
    values = np.take(x if axis is not None else x.ravel(), first[order], axis or 0)
    outputs = (values, first[order], place[inverse.ravel()], counts[order])
    return tuple(v if i == 0 else v.astype(np.int64) for i, v in enumerate(outputs))[: len(node.output)]


@meaning("StringNormalizer", 10)
def _string_normalizer(node, x, *, case_change_action, is_case_sensitive, locale=None, stopwords=None):
    """Without any word left there is an empty one."""
    demand(x.ndim == 1 or (x.ndim == 2 and x.shape[0] == 1), f"shape {x.shape}")
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[case_change_action]
    fold = str if is_case_sensitive else str.lower
    stop = {fold(word) for word in stopwords or ()}
    words = [change(str(word)) for word in x.ravel() if fold(str(word)) not in stop] or [""]
    return np.array(words, object).reshape((1, -1) if x.ndim == 2 else -1)
