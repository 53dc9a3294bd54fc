"""Comparison of forecasts with published measurements of training, and fits to them.

from slipstream.forecast.validate.table import read

cases, unread = read("measurements.csv")
"""
