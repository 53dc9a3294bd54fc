"""Calibration of the forecast: numbers measured on a machine replace published numbers.

This package takes no measurements itself. It turns the measurements of
`slipstream.bench.forecast.device` and `slipstream bench comm` into one data file of devices, links
and software parameters, which `slipstream forecast --hardware` reads.
"""
