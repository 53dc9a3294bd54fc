"""Published measurements of training, to fit forecasts on and to judge them by.

from slipstream.forecast.validate.table import read

cases, unread = read("measurements.csv")
"""
