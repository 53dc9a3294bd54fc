"""The comparison of a candidate's outputs with the outputs of the reference."""
