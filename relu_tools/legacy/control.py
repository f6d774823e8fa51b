"""Loops."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun

from .registry import demand, meaning


class _WithBody(OpRun):
    def need_context(self) -> bool:
        return True

    def body_outputs(self, context: dict, feeds: dict, attributes: dict | None) -> list:
        return self.body.run(None, {**context, **feeds}, attributes=attributes or {})


@meaning("Loop", 1)
class Loop(_WithBody):
    """Scan outputs are stacked along a new first axis; of no iterations at all their shape is not known."""

    op_domain = ""

    def _run(self, trips, condition, *carried, context=None, body=None, attributes=None, **_):
        names = self.body.input_names
        values, stacks = (
            list(carried),
            [[] for _ in range(len(self.body.output_names) - 1 - len(carried))],
        )
        going, number = condition is None or bool(np.asarray(condition).item()), 0
        while going and (trips is None or number < int(np.asarray(trips).item())):
            feeds = dict(
                zip(
                    names,
                    [np.array(number, np.int64), np.array(True), *values],
                    strict=True,
                )
            )
            going, *results = self.body_outputs(context, feeds, attributes)
            going = bool(np.asarray(going).item())
            values = results[: len(values)]
            for stack, value in zip(stacks, results[len(values) :], strict=True):
                stack.append(value)
            number += 1
        if not number and stacks:
            raise NotImplementedError("the shape of what a Loop without iterations stacks is not known")
        return (*values, *map(np.stack, stacks))


@meaning("Scan", 8, 9)
class Scan8(_WithBody):
    """Over a batch, each entry of a length of its own; what lies after it in a stack is 0."""

    op_domain = ""

    def _run(
        self,
        lengths,
        *inputs,
        context=None,
        body=None,
        num_scan_inputs,
        directions=None,
        attributes=None,
        **_,
    ):
        states, scanned = (
            inputs[: len(inputs) - num_scan_inputs],
            inputs[len(inputs) - num_scan_inputs :],
        )
        batch, longest = scanned[0].shape[:2]
        demand(
            all(v.shape[:2] == (batch, longest) for v in scanned),
            "scan inputs of different lengths",
        )
        lengths = np.full(batch, longest) if lengths is None else lengths
        ends: list[list] = []
        for entry in range(batch):
            state, stacks, length = [s[entry] for s in states], [], int(lengths[entry])
            rows = [v[entry, :length][:: -1 if directions and directions[i] else 1] for i, v in enumerate(scanned)]
            for row in zip(*rows, strict=True):
                feeds = dict(zip(self.body.input_names, [*state, *row], strict=True))
                results = self.body_outputs(context, feeds, attributes)
                state = results[: len(states)]
                stacks.append(results[len(states) :])
            if not stacks and len(self.body.output_names) > len(states):
                raise NotImplementedError("the shape of what a Scan over nothing stacks is not known")
            padded = [np.stack(stack) for stack in zip(*stacks, strict=True)]
            padded = [np.pad(v, [(0, longest - length), *[(0, 0)] * (v.ndim - 1)]) for v in padded]
            ends.append([*state, *padded])
        return tuple(map(np.stack, zip(*ends, strict=True)))


@meaning("Scan", 9)
class Scan(_WithBody):
    """Opset 8 has another Scan, over batches."""

    op_domain = ""

    def _run(
        self,
        *inputs,
        context=None,
        body=None,
        num_scan_inputs,
        scan_input_axes=None,
        scan_input_directions=None,
        scan_output_axes=None,
        scan_output_directions=None,
        attributes=None,
        **_,
    ):
        state, scanned = (
            list(inputs[: len(inputs) - num_scan_inputs]),
            inputs[len(inputs) - num_scan_inputs :],
        )
        moved = []
        for i, value in enumerate(scanned):
            value = np.moveaxis(value, scan_input_axes[i] if scan_input_axes else 0, 0)
            moved.append(value[::-1] if scan_input_directions and scan_input_directions[i] else value)
        stacks: list[list] = [[] for _ in range(len(self.body.output_names) - len(state))]
        demand(len({len(v) for v in moved}) == 1, "scan inputs of different lengths")
        for row in zip(*moved, strict=True):
            feeds = dict(zip(self.body.input_names, [*state, *row], strict=True))
            results = self.body_outputs(context, feeds, attributes)
            state = results[: len(state)]
            for stack, value in zip(stacks, results[len(state) :], strict=True):
                stack.append(value)
        if stacks and not stacks[0]:
            raise NotImplementedError("the shape of what a Scan over nothing stacks is not known")
        stacked = []
        for i, stack in enumerate(stacks):
            rows = stack[::-1] if scan_output_directions and scan_output_directions[i] else stack
            stacked.append(np.moveaxis(np.stack(rows), 0, scan_output_axes[i] if scan_output_axes else 0))
        return (*state, *stacked)
