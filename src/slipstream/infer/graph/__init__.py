"""The graph of a model: its cost, its parts, and its conversion from and to ONNX."""
