"""The file of a compiled model."""
