"""Images as inputs of a model."""
