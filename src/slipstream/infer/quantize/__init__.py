"""Ranges of values from sample inputs, and which values and layers are worth storing as bytes."""
