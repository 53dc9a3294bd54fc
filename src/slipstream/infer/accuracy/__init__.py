"""The comparison of outputs with those of the reference."""
