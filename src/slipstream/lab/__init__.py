"""Simulated hosts on one machine: network namespaces, and links with chosen bit rates.

    with Lab(LabSpec(hosts=4, ranks_per_host=2, rate="1gbit", flow_rate="250mbit")) as lab:
        before = lab.counters()
        result = lab.run(["train.py", "--epochs", "1"])
        print(result.seconds, lab.counters().since(before).hosts[0].sent_payload_bytes)

A lab needs Linux, root and iproute2. Where these lack, a `RelayLab` has ordinary processes as
hosts, and a relay as links.
"""

from slipstream.lab.lab import Lab as Lab
from slipstream.lab.network import LabCounters as LabCounters
from slipstream.lab.network import LinkCounters as LinkCounters
from slipstream.lab.outcome import RankFailure as RankFailure
from slipstream.lab.outcome import RunResult as RunResult
from slipstream.lab.ranks import LabRun as LabRun
from slipstream.lab.relay_lab import RelayLab as RelayLab
from slipstream.lab.relay_lab import open_lab as open_lab
from slipstream.lab.spec import LabSpec as LabSpec
