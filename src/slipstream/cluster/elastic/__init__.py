"""Run a job whose processes are replaced when they fail, on hosts that come and go."""

from slipstream.cluster.elastic.launcher import launch_elastic as launch_elastic
from slipstream.cluster.elastic.options import ElasticOptions as ElasticOptions
from slipstream.cluster.elastic.options import HostRules as HostRules
