"""Our negotiation of the next tensors to reduce, beside a central coordinator."""
