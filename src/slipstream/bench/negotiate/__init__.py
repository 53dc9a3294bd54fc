"""Comparison of Slipstream's negotiation of the order of tensors with a central coordinator."""
