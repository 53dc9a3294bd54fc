"""Several jobs on one set of machines: who runs when, on which GPUs, and who has to wait for what."""
