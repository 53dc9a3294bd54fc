"""The Open Inference Protocol: the bytes of requests and responses."""
