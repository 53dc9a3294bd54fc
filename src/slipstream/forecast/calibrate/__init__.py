"""Calibration: measured numbers of the machine at hand replace published ones.

This package computes and writes files; it times nothing. It turns the measurements of
`slipstream.bench.forecast.device` and `slipstream bench comm` into one data file of devices, links
and software parameters, which `slipstream forecast --hardware` reads.
"""
