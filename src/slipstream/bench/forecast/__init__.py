"""Forecasts beside measurements, in the lab and on this machine."""
