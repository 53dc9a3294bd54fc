"""Benchmark of the NCCL plugin, beside plain sockets as NCCL uses them."""
