"""Numbers of the machine at hand in the place of published ones: arithmetic and files, no clock.

What was timed (`slipstream.bench.forecast.device`, `slipstream bench comm`) is made one data file
of devices, links and software's numbers, which `slipstream forecast --hardware` reads.
"""
