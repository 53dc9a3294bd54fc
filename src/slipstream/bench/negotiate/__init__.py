"""Benchmark of the negotiation of one order of tensors, beside a central coordinator."""
