"""Run two forms of the digits network on its test images: `python models/evaluate.py models/digits.onnx B.onnx`.

Prints how many of the images in digits_test.npz each gets right. Exits with 1 if an answer differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime


def answers(path: str, images: np.ndarray) -> np.ndarray:
    """The digit that the model sees in each image, int64 [N]."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"image": images})
    return probabilities.argmax(1)


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: python models/evaluate.py A.onnx B.onnx", file=sys.stderr)
        return 2
    with np.load(Path(__file__).with_name("digits_test.npz")) as test:
        images, digits = test["image"], test["digit"]
    first, second = (answers(path, images) for path in sys.argv[1:])
    for path, found in zip(sys.argv[1:], (first, second), strict=True):
        right = int((found == digits).sum())
        print(f"{path}: {right} of {len(digits)} right ({right / len(digits):.1%})")
    same = int((first == second).sum())
    print(f"{'all ' if same == len(digits) else ''}{same} of {len(digits)} test images get the same answer")
    return 0 if same == len(digits) else 1


if __name__ == "__main__":
    sys.exit(main())
