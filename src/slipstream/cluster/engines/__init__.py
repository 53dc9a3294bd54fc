"""Engines find the hosts of a run and start the host daemons and the head on them."""
