"""Importer of JAX functions."""
