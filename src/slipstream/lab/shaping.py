"""What tc is told so that a link has a rate, and each flow on it at most its own.

One HTB class has the link's rate. Without caps it is a leaf. With caps it has one child per path
(ceil: the cap) and one for what is not TCP over IPv4; a child's own rate is its even share of the
link, since HTB lets every class have its own rate, whatever the parent has left. A classic BPF
program hashes the destination and both ports of a packet to a path.

HTB counts a segmentation-offload packet of up to 64 KB with the headers of all its segments and
lets it pass as soon as the bucket is not empty, so the bucket may be smaller than the packet and
the rate is that of Ethernet frames (without preamble and checksum: 1448 bytes of payload in 1514).
"""

# What a link may send at once after a pause. Less, and a timer that fires late on a busy machine
# costs bandwidth; more, and short transfers are faster than the link: 0.2% of 100 MB at 1 Gbit/s.
BURST_SECONDS = 0.002
MIN_BURST_BYTES = 3028  # two full frames

# The largest offload packet takes this long. The kernel would make 64 KB of it at any rate, since
# the round trips of a lab are short: a queue that is full then drops 44 segments at once, and what
# connections share through a slow uplink is shared unfairly.
OFFLOAD_SECONDS = 0.0005
MAX_OFFLOAD_BYTES = 65_536

# How long a queue may be, in seconds and, for slow links, in bytes. TCP keeps the queue of its own
# host short, and what is dropped there is a stumble that no real host has: with 5 ms, four
# connections reached 0.80 to 0.92 of a link of 1 Gbit/s together, with 20 ms 0.91 to 0.96, and
# ping took 2 to 5 ms. A switch drops; 10 ms at 1 Gbit/s are what a port of a usual one has.
HOST_QUEUE_SECONDS = 0.020
SWITCH_QUEUE_SECONDS = 0.010
MIN_QUEUE_BYTES = 131_072

QUANTUM_BYTES = 65_536  # how much a flow may send in turn: one offload packet

LINK_CLASS = 0x1
OTHER_CLASS = 0x2
FIRST_PATH_CLASS = 0x10
_HANDLE = 0x10000  # the number of qdisc 1: in the upper half of a class identifier

_LDH, _LDB, _LDX_HEADER, _LD_INDIRECT, _LD = 0x28, 0x30, 0xB1, 0x40, 0x20
_JEQ, _ST, _LDX, _TAX = 0x15, 0x02, 0x61, 0x07
_MUL, _RSH, _XOR_X, _MOD, _ADD = 0x24, 0x74, 0xAC, 0x94, 0x04
_RETURN, _RETURN_A = 0x06, 0x16


def shape_link(
    device: str, rate: int, queue_seconds: float, flow_caps: tuple[int, ...] = ()
) -> list[str]:
    """Return tc's commands that give a device's outgoing side a rate.

    Args:
        device: without a qdisc so far.
        rate: Rate of the link, in bits per second.
        queue_seconds: Time that it takes to send a full queue, in seconds.
        flow_caps: Cap of each path, in bits per second; empty for no caps.
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
    """Return tc's commands that give a shaped device other rates, for as many paths as it has."""
    lines = [_class(device, LINK_CLASS, "1:", rate, rate, verb)]
    if flow_caps:
        share = max(rate // (len(flow_caps) + 1), 8_000)
        for leaf, cap in zip(_path_classes(flow_caps), (rate, *flow_caps), strict=True):
            ceil = min(cap, rate)
            lines.append(_class(device, leaf, f"1:{LINK_CLASS:x}", min(share, ceil), ceil, verb))
    return lines


def offload_bytes(rate: int) -> int:
    """Return the largest offload packet for a link of this rate, in bits per second."""
    return min(max(int(rate * OFFLOAD_SECONDS / 8), MIN_BURST_BYTES), MAX_OFFLOAD_BYTES)


def flow_hash(num_paths: int) -> str:
    """Return a classic BPF program, as tc reads it, that gives a TCP packet the class of its path.

    Returns 0, no class, for everything that is not TCP over IPv4.
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
        (_LD, 0, 0, 30),  # destination
        (_LDX, 0, 0, 0),
        (_XOR_X, 0, 0, 0),
        # Ports and addresses often follow one another: the finishing rounds of MurmurHash3.
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
