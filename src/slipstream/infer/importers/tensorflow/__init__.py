"""Importer of TensorFlow's models."""
