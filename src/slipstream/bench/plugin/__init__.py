"""Comparison of the NCCL plugin with plain sockets, which are used as NCCL uses them."""
