"""A gateway: one address for replicas of `slipstream serve`, started and ended by load."""
