"""Operators on text below the opsets that have them: what counts can be written out, what changes strings cannot."""

from __future__ import annotations

import functools

import numpy as np
from onnx import TensorProto as T

from relu_tools.adapters import adapter
from relu_tools.report import RefusedError

END = np.iinfo(np.int64).max


@adapter("TfIdfVectorizer", 9, None)
def tf_idf(
    op,
    X,
    *,
    min_gram_length,
    max_gram_length,
    max_skip_count,
    mode,
    ngram_counts,
    ngram_indexes,
    pool_int64s,
    pool_strings,
    weights,
):
    """9 is its first version.

    The items that follow each other at each distance are compared with each n-gram of the pool, and the hits counted.
    Strings cannot be compared before 19.
    """
    if pool_int64s is None:
        raise RefusedError("before 9 no operator compares strings")
    rows = op.Reshape(X, np.array([1, -1])) if op.rank(X) < 2 else X
    grams = _grams(pool_int64s, ngram_counts)
    counts, numbers = [], []
    for n in range(min_gram_length, max_gram_length + 1):
        items = np.array([gram for gram in grams if len(gram) == n], np.int64).reshape(-1, n)
        if items.size:
            counts.append(_hits(op, rows, items, max_skip_count + 1 if n > 1 else 1))
            numbers += [grams[tuple(gram)] for gram in items.tolist()]
    weights = weights if mode != "TF" and weights else [1.0] * len(ngram_indexes)
    if mode != "TF" and len(set(ngram_indexes)) < len(ngram_indexes):
        raise RefusedError("n-grams that share a column are weighted differently by runtimes")
    select = np.zeros((len(numbers), max(ngram_indexes) + 1), np.float32)
    for row, number in enumerate(numbers):
        select[row, ngram_indexes[number]] = weights[number]
    count = op.Concat(*counts, axis=1) if len(counts) > 1 else counts[0]
    Y = op.MatMul(op.Cast(op.Cast(count, to=T.BOOL), to=T.FLOAT) if mode == "IDF" else count, select)
    return op.Reshape(Y, np.array([-1])) if rows != X else Y


def _grams(pool, starts) -> dict[tuple[int, ...], int]:
    """The number of each n-gram in the pool; of equal ones the last one counts."""
    found: dict[tuple[int, ...], int] = {}
    place = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for k in range(start, end - n + 1, n):
            found[tuple(pool[k : k + n])] = place
            place += 1
    return found


def _hits(op, rows, grams, distances):
    """How often each n-gram occurs in each row, its items being 1, 2, ... places from each other."""
    dtype, (_, n) = op.like(0, rows).dtype, grams.shape
    counts = []
    for distance in range(1, distances + 1):
        equal = []
        for k in range(n):
            # Where a row is too short for this distance, no slice of it holds anything.
            rest = (n - 1 - k) * distance
            part = op.Slice(rows, starts=[k * distance], ends=[-rest or END], axes=[1])
            equal.append(op.Equal(op.Unsqueeze(part, axes=[2]), grams[:, k].astype(dtype)))
        hits = op.Cast(functools.reduce(op.And, equal), to=T.FLOAT)
        counts.append(op.ReduceSum(hits, axes=[1], keepdims=0))
    return functools.reduce(op.Add, counts)


@adapter("StringNormalizer", 10, None)
def normalize_strings(op, X, *, case_change_action, is_case_sensitive, locale, stopwords):
    """10 is its first version.

    No older operator changes or compares strings; where it leaves them as they are it is Identity.
    """
    if case_change_action != "NONE" or stopwords:
        raise RefusedError("before 10 no operator changes or compares strings", "normalize them before the model runs")
    return op.Identity(X)


@adapter("StringConcat StringSplit RegexFullMatch ImageDecoder", 20, None)
def nothing_older(op, *inputs, **attributes):
    """20 is their first version.

    No older operator joins, splits or matches strings, or reads files of images: they are refused.
    """
    reads = "reads files of images" if op.type == "ImageDecoder" else "joins, splits or matches strings"
    raise RefusedError(f"before 20 no operator {reads}", "do it before the model runs")
