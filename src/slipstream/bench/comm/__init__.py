"""Benchmark that compares Slipstream's collectives with gloo, MPI, NCCL and theoretical bounds."""
