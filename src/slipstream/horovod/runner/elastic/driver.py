"""The times of elastic jobs, which scripts and tests may change."""

DISCOVER_HOSTS_FREQUENCY_SECS = 1.0  # time between two runs of the script that prints hosts
ELASTIC_TIMEOUT_SECS = 600  # longest time with too few processes
