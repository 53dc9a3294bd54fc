"""Examine hosts that are reached by ssh, and the network between each pair of them."""

from slipstream.cluster.doctor.examination import Examination, HostFindings, PairFindings, examine
from slipstream.cluster.doctor.verdict import Problem, problems_of

__all__ = ["Examination", "HostFindings", "PairFindings", "Problem", "examine", "problems_of"]
