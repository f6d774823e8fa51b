"""A small convolutional network for 8x8 digits: its layers and training in numpy, and its export to ONNX opset 14.

Images are float32 [N, 1, 8, 8] from 0 (paper) to 1 (ink), in the layout of ONNX; labels are int64 [N]. A layer knows
its forward pass, its backward pass (which notes the gradients of its parameters and returns that of its input) and
its ONNX node. scikit-learn is needed for its `load_digits` (1797 images) alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 14
TEST_IMAGES = 360
EPOCHS = 30
BATCH = 64
LEARNING_RATE = 3e-3

Array = np.ndarray[Any, np.dtype[Any]]


class Layer:
    """`weights` are trained by gradient and `buffers` are not; both become initializers, in the node's input order."""

    op = ""

    def __init__(self) -> None:
        self.weights: dict[str, Array] = {}
        self.buffers: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        """The output; `rng` is there in training and None in inference."""
        raise NotImplementedError

    def backward(self, dy: Array) -> Array:
        """The gradient of the input, from that of the output of the last forward pass."""
        raise NotImplementedError

    def attributes(self) -> dict[str, Any]:
        return {}


def patches(x: Array) -> Array:
    """The 3x3 neighbourhoods of each pixel, zeros outside: [N, C, H, W] to [N * H * W, C * 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * 9)


def correlate(columns: Array, weight: Array, shape: tuple[int, ...]) -> Array:
    """A 3x3 convolution of the image of `shape` whose `patches` are `columns`."""
    n, _, h, w = shape
    return (columns @ weight.reshape(len(weight), -1).T).reshape(n, h, w, -1).transpose(0, 3, 1, 2)


class Conv(Layer):
    """3x3, padded to keep the size, without bias, since batch normalization follows."""

    op = "Conv"

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weights["weight"] = he(rng, (outputs, inputs, 3, 3), fan_in=inputs * 9)

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        self.shape, self.columns = x.shape, patches(x)
        return correlate(self.columns, self.weights["weight"], x.shape)

    def backward(self, dy: Array) -> Array:
        weight = self.weights["weight"]
        rows = dy.transpose(0, 2, 3, 1).reshape(-1, len(weight))
        self.gradients["weight"] = (rows.T @ self.columns).reshape(weight.shape)
        return correlate(patches(dy), weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1], dy.shape)

    def attributes(self) -> dict[str, Any]:
        return {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


class BatchNormalization(Layer):
    op = "BatchNormalization"
    epsilon = np.float32(1e-5)
    momentum = np.float32(0.9)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weights = {"scale": np.ones(channels, np.float32), "bias": np.zeros(channels, np.float32)}
        self.buffers = {"mean": np.zeros(channels, np.float32), "var": np.ones(channels, np.float32)}

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        mean, var = self.buffers["mean"], self.buffers["var"]
        if rng:
            batch = {"mean": x.mean((0, 2, 3)), "var": x.var((0, 2, 3))}
            for name, running in self.buffers.items():
                running += (1 - self.momentum) * (batch[name] - running)
            mean, var = batch["mean"], batch["var"]
        self.deviation = np.sqrt(var + self.epsilon)
        self.normal = (x - per_channel(mean)) / per_channel(self.deviation)
        return self.normal * per_channel(self.weights["scale"]) + per_channel(self.weights["bias"])

    def backward(self, dy: Array) -> Array:
        self.gradients["scale"] = (dy * self.normal).sum((0, 2, 3))
        self.gradients["bias"] = dy.sum((0, 2, 3))
        pixels = np.float32(dy.size // dy.shape[1])
        along_statistics = per_channel(self.gradients["bias"]) + self.normal * per_channel(self.gradients["scale"])
        return (dy - along_statistics / pixels) * per_channel(self.weights["scale"] / self.deviation)

    def attributes(self) -> dict[str, Any]:
        return {"epsilon": float(self.epsilon)}


class Relu(Layer):
    op = "Relu"

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        self.open = x > 0
        return x * self.open

    def backward(self, dy: Array) -> Array:
        return dy * self.open


class Clip(Layer):
    """Relu with a ceiling of 6."""

    op = "Clip"

    def __init__(self) -> None:
        super().__init__()
        self.buffers = {"min": np.array(0, np.float32), "max": np.array(6, np.float32)}

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        self.open = (x > self.buffers["min"]) & (x < self.buffers["max"])
        return np.clip(x, self.buffers["min"], self.buffers["max"])

    def backward(self, dy: Array) -> Array:
        return dy * self.open


class LeakyRelu(Layer):
    op = "LeakyRelu"
    alpha = np.float32(0.1)

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        self.slope = np.where(x < 0, self.alpha, np.float32(1))
        return x * self.slope

    def backward(self, dy: Array) -> Array:
        return dy * self.slope

    def attributes(self) -> dict[str, Any]:
        return {"alpha": float(self.alpha)}


class ThresholdedRelu(Relu):
    op = "ThresholdedRelu"
    alpha = np.float32(0.1)

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        self.open = x > self.alpha
        return x * self.open

    def attributes(self) -> dict[str, Any]:
        return {"alpha": float(self.alpha)}


class MaxPool(Layer):
    """2x2, halving height and width."""

    op = "MaxPool"

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = blocks.max((3, 5), keepdims=True)
        largest = (blocks == y).astype(np.float32)
        self.share = largest / largest.sum((3, 5), keepdims=True)
        return y[:, :, :, 0, :, 0]

    def backward(self, dy: Array) -> Array:
        n, c, h, w = dy.shape
        return (self.share * dy[:, :, :, None, :, None]).reshape(n, c, h * 2, w * 2)

    def attributes(self) -> dict[str, Any]:
        return {"kernel_shape": [2, 2], "strides": [2, 2]}


class Flatten(Layer):
    op = "Flatten"

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy: Array) -> Array:
        return dy.reshape(self.shape)


class Gemm(Layer):
    op = "Gemm"

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weights["weight"] = he(rng, (outputs, inputs), fan_in=inputs)
        self.weights["bias"] = np.zeros(outputs, np.float32)

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        self.x = x
        return x @ self.weights["weight"].T + self.weights["bias"]

    def backward(self, dy: Array) -> Array:
        self.gradients["weight"] = dy.T @ self.x
        self.gradients["bias"] = dy.sum(0)
        return dy @ self.weights["weight"]

    def attributes(self) -> dict[str, Any]:
        return {"transB": 1}


class Dropout(Layer):
    """The exported node has no `training_mode`, so it passes its input on; exporters often leave such nodes in."""

    op = "Dropout"

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.buffers["ratio"] = np.array(ratio, np.float32)

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        if not rng:
            return x
        ratio = self.buffers["ratio"]
        self.kept = (rng.random(x.shape, np.float32) >= ratio).astype(np.float32) / (1 - ratio)
        return x * self.kept

    def backward(self, dy: Array) -> Array:
        return dy * self.kept


class Softmax(Layer):
    """Its `backward` takes the labels as probabilities: with cross-entropy, the gradient is a mere difference."""

    op = "Softmax"

    def forward(self, x: Array, rng: np.random.Generator | None) -> Array:
        powers = np.exp(x - x.max(1, keepdims=True))
        self.y = powers / powers.sum(1, keepdims=True)
        return self.y

    def backward(self, dy: Array) -> Array:
        return (self.y - dy) / np.float32(len(dy))

    def attributes(self) -> dict[str, Any]:
        return {"axis": 1}


def network(rng: np.random.Generator) -> list[Layer]:
    """Untrained layers, from image to probabilities."""
    return [
        *(Conv(rng, 1, 16), BatchNormalization(16), Relu()),
        *(Conv(rng, 16, 32), BatchNormalization(32), Clip(), MaxPool()),
        *(Conv(rng, 32, 48), BatchNormalization(48), LeakyRelu(), MaxPool()),
        *(Flatten(), Gemm(rng, 192, 64), ThresholdedRelu(), Dropout(0.3)),
        *(Gemm(rng, 64, 10), Softmax()),
    ]


def he(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> Array:
    """Normal weights that keep the variance through a Relu."""
    return rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / fan_in))


def per_channel(values: Array) -> Array:
    return values[:, None, None]


def forward(layers: Iterable[Layer], x: Array, rng: np.random.Generator | None = None) -> Array:
    for layer in layers:
        x = layer.forward(x, rng)
    return x


class Adam:
    """Kingma and Ba, 2015, with their constants."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        self.moments = [
            (layer, key, np.zeros_like(weight), np.zeros_like(weight))
            for layer in layers
            for key, weight in layer.weights.items()
        ]
        self.steps = 0

    def step(self, rate: float) -> None:
        self.steps += 1
        for layer, key, first, second in self.moments:
            gradient = layer.gradients[key]
            first += np.float32(0.1) * (gradient - first)
            second += np.float32(0.001) * (gradient**2 - second)
            unbiased = first / np.float32(1 - 0.9**self.steps)
            deviation = np.sqrt(second / np.float32(1 - 0.999**self.steps))
            layer.weights[key] -= np.float32(rate) * unbiased / (deviation + np.float32(1e-8))


def dataset() -> tuple[Array, Array]:
    """scikit-learn's images and labels, in its order."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8), digits.astype(np.int64)


def test_set() -> tuple[Array, Array]:
    """The last images, held out of training: shuffling would spread each writer's hand over both sets."""
    images, digits = dataset()
    return images[-TEST_IMAGES:], digits[-TEST_IMAGES:]


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Each image moved by up to one pixel along each axis."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = rng.integers(0, 3, (len(images), 2))
    return np.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, moves, strict=True)])


def train(seed: int = 0) -> list[Layer]:
    """The trained layers, after about 20 seconds on one core."""
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(seed)
    images, digits = (part[:-TEST_IMAGES] for part in dataset())
    labels = np.eye(10, dtype=np.float32)[digits]
    layers = network(rng)
    adam = Adam(layers)
    # The order in which threads add up would show in the weights.
    with threadpool_limits(1):
        for epoch in range(EPOCHS):
            order = rng.permutation(len(images))
            rate = LEARNING_RATE * (1 + np.cos(np.pi * epoch / EPOCHS)) / 2
            for batch in np.split(order, range(BATCH, len(order), BATCH)):
                forward(layers, shifted(images[batch], rng), rng)
                gradient = labels[batch]
                for layer in reversed(layers):
                    gradient = layer.backward(gradient)
                adam.step(rate)
    return layers


def correct(layers: list[Layer]) -> int:
    """How many test images are recognized."""
    images, digits = test_set()
    return int((forward(layers, images).argmax(1) == digits).sum())


def export(layers: list[Layer]) -> onnx.ModelProto:
    """`layers` as they are in inference, a node each, at `OPSET`: "image" [N, 1, 8, 8] to "probabilities" [N, 10]."""
    nodes: list[onnx.NodeProto] = []
    initializers: list[TensorProto] = []
    value = "image"
    for index, layer in enumerate(layers):
        name = f"{layer.op}_{index}"
        parameters = {f"{name}.{key}": array for key, array in {**layer.weights, **layer.buffers}.items()}
        initializers += [numpy_helper.from_array(array, key) for key, array in parameters.items()]
        output = "probabilities" if layer is layers[-1] else f"{name}.output"
        nodes.append(helper.make_node(layer.op, [value, *parameters], [output], name, **layer.attributes()))
        value = output
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        initializers,
        doc_string="Ink from 0 to 1 in, the probability of each digit from 0 to 9 out.",
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=helper.find_min_ir_version_for([opset]))
    found = correct(layers)
    helper.set_model_props(
        model,
        {
            "trained_on": f"all but the last {TEST_IMAGES} images of scikit-learn's load_digits",
            "tested_on": f"the last {TEST_IMAGES}, which are digits_test.npz",
            "correct": str(found),
            "accuracy": f"{found / TEST_IMAGES:.4f}",
        },
    )
    return model
