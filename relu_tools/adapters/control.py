"""Steps of the operators in ONNX's defs/controlflow. Their graphs are the engine's work; the operators stay alike."""

from __future__ import annotations

from relu_tools.adapters import same

same("If", 1, 11, 13, 16, 19, 21, 23, 24, 25)
same("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25)
same("Scan", 9, 11, 16, 19, 21, 23, 24, 25)
