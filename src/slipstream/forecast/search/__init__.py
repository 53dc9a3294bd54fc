"""Search for the fastest or the cheapest way to train a model."""
