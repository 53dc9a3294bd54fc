"""Compiled models, called and streamed."""
