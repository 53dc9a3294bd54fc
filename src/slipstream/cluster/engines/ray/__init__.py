"""The engine of Ray."""
