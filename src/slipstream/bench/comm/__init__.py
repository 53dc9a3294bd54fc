"""Collectives beside gloo, Open MPI and the limits of the link."""
