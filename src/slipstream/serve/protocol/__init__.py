"""The Open Inference Protocol as bytes: what requests and responses are."""
