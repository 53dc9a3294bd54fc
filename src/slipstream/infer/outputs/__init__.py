"""Reduce a model's outputs to the best classes, or to boxes that do not overlap."""
