"""What runs on the hosts of a job: the host daemon on each of them, and the head on one.

The head starts the ranks through agents, as `slipstream run` does. The host daemons, which connect
to the head, start the agents; so hosts need no ssh among each other, and the head works the same on
every engine. Nothing here imports more than the base installation of Slipstream.
"""
