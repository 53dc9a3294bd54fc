"""Architectures that a forecast knows by name."""
