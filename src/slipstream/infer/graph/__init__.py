"""The graph of a model: its cost, its parts, and its conversion from ONNX and to ONNX."""
