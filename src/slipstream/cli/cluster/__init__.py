"""`slipstream cluster`: runs, their machines, and what they cost."""
