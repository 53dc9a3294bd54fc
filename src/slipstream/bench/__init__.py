"""The product's own benchmarks. Importing this package imports no framework."""
