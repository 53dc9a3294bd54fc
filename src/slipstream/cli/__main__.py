"""`python -m slipstream.cli`, for where the command is not on the path."""

from slipstream.cli import main

main()
