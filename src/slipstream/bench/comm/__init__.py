"""Benchmark of collectives beside gloo, Open MPI and the lower bounds that the links allow."""
