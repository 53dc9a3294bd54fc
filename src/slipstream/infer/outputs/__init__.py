"""Outputs reduced to what is asked: classes or boxes."""
