"""Negotiation of the order in which tensors are reduced: ours beside a central coordinator."""
