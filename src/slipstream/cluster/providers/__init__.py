"""Providers create the machines of a cluster; every machine is then a host for ssh."""

from slipstream.cluster.providers.boot import extension_command as extension_command
from slipstream.cluster.providers.choice import cloud_provider as cloud_provider
from slipstream.cluster.providers.gc import GcReport as GcReport
from slipstream.cluster.providers.gc import collect as collect
from slipstream.cluster.providers.pace import BusyError as BusyError
from slipstream.cluster.providers.pace import Pace as Pace
from slipstream.cluster.providers.protocol import ClusterMachine as ClusterMachine
from slipstream.cluster.providers.protocol import ClusterRequest as ClusterRequest
from slipstream.cluster.providers.protocol import Found as Found
from slipstream.cluster.providers.protocol import MachineOffer as MachineOffer
from slipstream.cluster.providers.protocol import Provider as Provider
