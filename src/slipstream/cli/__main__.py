"""`python -m slipstream.cli`, for use if the command `slipstream` is not on the path."""

from slipstream.cli import main

main()
