"""Calibration of the forecast: numbers measured on a machine replace published numbers.

The package turns measurements of `slipstream.bench.forecast.device` and of `slipstream bench comm`
into one data file of devices, links and software parameters. `slipstream forecast --hardware` reads
the data file.
"""
