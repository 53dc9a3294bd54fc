"""Calibration of the forecast: numbers measured on a machine replace published numbers.

This package takes no measurements itself. Its input are the measurements of
`slipstream.bench.forecast.device` and `slipstream bench comm` and its output is one data file of
devices, links and software parameters, which `slipstream forecast --hardware` reads.
"""
