"""Comparison of forecasts with published measurements, and fits to these measurements.

from slipstream.forecast.validate.table import read

cases, unread = read("measurements.csv")
"""
