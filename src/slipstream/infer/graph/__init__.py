"""The graph of a model, and how it is read and written."""
