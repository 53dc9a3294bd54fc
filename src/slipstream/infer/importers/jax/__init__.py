"""JAX's functions as graphs."""
