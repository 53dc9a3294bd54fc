"""Jobs of the queue that run over machines: each start is a run, with a client on this host."""
