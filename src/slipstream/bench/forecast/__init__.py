"""Forecasts beside what was measured, in the lab and on this machine."""
