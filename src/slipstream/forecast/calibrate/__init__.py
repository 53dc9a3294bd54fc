"""Calibration of the forecast: numbers measured on a machine replace published numbers.

The package writes one data file of devices, links and software parameters. The file contains
results that `slipstream.bench.forecast.device` and `slipstream bench comm` measured. `slipstream
forecast --hardware` reads the file.
"""
