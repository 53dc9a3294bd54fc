"""Bring up machines, run jobs on them, and give everything back."""
