"""Importer of TensorFlow and Keras models."""
