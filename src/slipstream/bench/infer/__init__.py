"""Latency and accuracy of models beside other engines."""
