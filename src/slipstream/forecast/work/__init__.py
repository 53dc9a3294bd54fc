"""Work of one step of a model, and its division among devices."""
