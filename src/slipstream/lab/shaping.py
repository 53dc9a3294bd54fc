"""Commands of tc that limit the rate of a link and of each connection on it.

One class of the queueing discipline HTB has the rate of the link. Without limits per connection,
the link's class is a leaf. With limits per connection, each connection belongs to a path, which is
a group of connections with a common limit. A classic BPF program chooses the path of a packet by a
hash of its destination address and both ports. The link's class has one child class per path, and
the `ceil` of a child class is the limit of its path. One more child class is for traffic other than
TCP over IPv4. The guaranteed rate of a child class is an equal share of the link's rate, because
HTB grants guaranteed rates even if they exceed the parent's rate.

A segmentation-offload packet has up to 64 KB. HTB takes tokens for the packet and for the headers
of all its segments, but sends the packet as soon as the token bucket is not empty. Therefore the
token bucket may be smaller than a segmentation-offload packet. The limit applies to Ethernet frames
without preamble and checksum. A full frame has 1514 such bytes, of which 1448 are payload.
"""

# Size of the token bucket, as seconds at the rate of the link. With a smaller bucket, bandwidth is
# lost if a timer fires late on a busy machine. With a larger bucket, short transfers are faster
# than the link. This size adds 0.2 % to 100 MB at 1 Gbit/s.
BURST_SECONDS = 0.002
MIN_BURST_BYTES = 3028  # two full frames

# Size of the largest offload packet, as seconds at the rate of the link. Because the round trips of
# a lab are short, the kernel would make packets of 64 KB at any rate. A full queue would then drop
# 44 segments at once, and connections would share a slow uplink unfairly.
OFFLOAD_SECONDS = 0.0005
MAX_OFFLOAD_BYTES = 65_536

# Lengths of queues, in seconds at the rate of the link; for slow links, a minimum in bytes. A real
# host drops nothing in its own queue, because TCP keeps the queue short. With 5 ms, four
# connections together reached 0.80 to 0.92 of a link of 1 Gbit/s. With 20 ms they reached 0.91 to
# 0.96, and ping took 2 to 5 ms. A switch does drop packets; the port of a common switch has a queue
# of 10 ms at 1 Gbit/s.
HOST_QUEUE_SECONDS = 0.020
SWITCH_QUEUE_SECONDS = 0.010
MIN_QUEUE_BYTES = 131_072

QUANTUM_BYTES = 65_536  # bytes that a class may send in its turn: one offload packet

LINK_CLASS = 0x1
OTHER_CLASS = 0x2
FIRST_PATH_CLASS = 0x10
_HANDLE = 0x10000  # number of the qdisc "1:", in the upper half of a class identifier

_LDH, _LDB, _LDX_HEADER, _LD_INDIRECT, _LD = 0x28, 0x30, 0xB1, 0x40, 0x20
_JEQ, _ST, _LDX, _TAX = 0x15, 0x02, 0x61, 0x07
_MUL, _RSH, _XOR_X, _MOD, _ADD = 0x24, 0x74, 0xAC, 0x94, 0x04
_RETURN, _RETURN_A = 0x06, 0x16


def shape_link(
    device: str, rate: int, queue_seconds: float, flow_caps: tuple[int, ...] = ()
) -> list[str]:
    """Return the tc commands that limit the rate of a device's outgoing traffic.

    Args:
        device: Name of a device that has no qdisc yet.
        rate: Bit rate of the link in bits per second.
        queue_seconds: Size of the queue, as the time in seconds that the link needs to send a full
            queue.
        flow_caps: Limit of each path in bits per second (default empty: no limits).
    """
    default = OTHER_CLASS if flow_caps else LINK_CLASS
    lines = [
        f"qdisc add dev {device} root handle 1: htb default {default:x}",
        *change_link(device, rate, flow_caps, verb="add"),
    ]
    limit = max(int(rate * queue_seconds / 8), MIN_QUEUE_BYTES)
    leaves = _path_classes(flow_caps) if flow_caps else [LINK_CLASS]
    for leaf in leaves:
        lines.append(f"qdisc add dev {device} parent 1:{leaf:x} bfifo limit {limit}")
    if flow_caps:
        program = flow_hash(len(flow_caps))
        lines.append(
            f"filter add dev {device} parent 1: protocol all prio 1 bpf bytecode '{program}'"
        )
    return lines


def change_link(
    device: str, rate: int, flow_caps: tuple[int, ...] = (), *, verb: str = "change"
) -> list[str]:
    """Return the tc commands that change the rates of a device that `shape_link` limited.

    Args:
        device: Name of the device.
        rate: Bit rate of the link in bits per second.
        flow_caps: Limit of each path in bits per second; the number of paths must not change.
        verb: Command of tc: "change" (default), or "add" if the device has no classes yet.
    """
    lines = [_class(device, LINK_CLASS, "1:", rate, rate, verb)]
    if flow_caps:
        share = max(rate // (len(flow_caps) + 1), 8_000)
        for leaf, cap in zip(_path_classes(flow_caps), (rate, *flow_caps), strict=True):
            ceil = min(cap, rate)
            lines.append(_class(device, leaf, f"1:{LINK_CLASS:x}", min(share, ceil), ceil, verb))
    return lines


def offload_bytes(rate: int) -> int:
    """Return the size of the largest offload packet in bytes, for a rate in bits per second."""
    return min(max(int(rate * OFFLOAD_SECONDS / 8), MIN_BURST_BYTES), MAX_OFFLOAD_BYTES)


def flow_hash(num_paths: int) -> str:
    """Return a classic BPF program for tc that maps a packet to the HTB class of its path.

    For everything except TCP over IPv4, the program returns 0, which stands for no class.
    """
    other = 22
    program = [
        (_LDH, 0, 0, 12),
        (_JEQ, 0, other - 2, 0x0800),  # IPv4
        (_LDB, 0, 0, 23),
        (_JEQ, 0, other - 4, 6),  # TCP
        (_LDX_HEADER, 0, 0, 14),
        (_LD_INDIRECT, 0, 0, 14),  # both ports
        (_MUL, 0, 0, 0x9E3779B1),
        (_ST, 0, 0, 0),
        (_LD, 0, 0, 30),  # destination address
        (_LDX, 0, 0, 0),
        (_XOR_X, 0, 0, 0),
        # Ports and addresses are often consecutive, so the final rounds of MurmurHash3 mix them.
        (_MUL, 0, 0, 0x85EBCA6B),
        (_TAX, 0, 0, 0),
        (_RSH, 0, 0, 13),
        (_XOR_X, 0, 0, 0),
        (_MUL, 0, 0, 0xC2B2AE35),
        (_TAX, 0, 0, 0),
        (_RSH, 0, 0, 16),
        (_XOR_X, 0, 0, 0),
        (_MOD, 0, 0, num_paths),
        (_ADD, 0, 0, _HANDLE + FIRST_PATH_CLASS),
        (_RETURN_A, 0, 0, 0),
        (_RETURN, 0, 0, 0),
    ]
    steps = (" ".join(map(str, step)) for step in program)
    return f"{len(program)}," + ",".join(steps)


def _path_classes(flow_caps: tuple[int, ...]) -> list[int]:
    return [OTHER_CLASS, *range(FIRST_PATH_CLASS, FIRST_PATH_CLASS + len(flow_caps))]


def _class(device: str, name: int, parent: str, rate: int, ceil: int, verb: str) -> str:
    return (
        f"class {verb} dev {device} parent {parent} classid 1:{name:x} htb"
        f" rate {rate}bit burst {_burst_bytes(rate)} ceil {ceil}bit cburst {_burst_bytes(ceil)}"
        f" quantum {QUANTUM_BYTES}"
    )


def _burst_bytes(rate: int) -> int:
    return max(int(rate * BURST_SECONDS / 8), MIN_BURST_BYTES)
