"""Start the ranks of a job on one or more hosts, follow them, and end them together."""

from slipstream.cluster.launch.hosts import Host as Host
from slipstream.cluster.launch.hosts import fill_hosts as fill_hosts
from slipstream.cluster.launch.hosts import parse_hosts as parse_hosts
from slipstream.cluster.launch.hosts import read_hostfile as read_hostfile
from slipstream.cluster.launch.job import Job as Job
from slipstream.cluster.launch.launcher import launch as launch
