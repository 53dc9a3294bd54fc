"""The search for the fastest engine and precision that are accurate enough."""
