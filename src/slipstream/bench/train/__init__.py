"""A whole training beside gloo."""
