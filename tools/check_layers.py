"""Check the #include lines of core/, kernels/, bindings/, plugin/ and relay/ against the layers.

    base <- {topology, transport, reduce <- codec} <- collective <- engine <- negotiation <- runtime
    runtime -> {tcp, shm, fake}
    base <- gate <- {engine, device <- {cuda, fake}}: the engine uses gates, and never a device
    {engine, device} <- staged <- runtime
    {topology, tcp} <- plugin, the net plugin of NCCL, which has no engine
    bindings -> public headers and runtime
    relay, the library of the lab's ranks, which includes nothing of ours
    kernels, which are independent of core/ <- bindings/kernels

An arrow means "includes". The CMake targets enforce the same order at link time, but they do not
notice an #include of a header that needs no linking.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOUNDATION = {"public", "base"}
CONCRETE = {"transport/tcp", "transport/shm", "transport/rdma", "transport/fake"}
DEVICES = {"device/cuda", "device/fake"}
INTERFACES = FOUNDATION | {"topology", "transport", "reduce", "codec"}

ALLOWED: dict[str, set[str]] = {
    "public": {"public"},
    "base": FOUNDATION,
    "topology": FOUNDATION | {"topology"},
    "transport": FOUNDATION | {"transport"},
    "reduce": FOUNDATION | {"reduce", "hwy"},
    "codec": FOUNDATION | {"reduce", "codec", "hwy"},
    "collective": INTERFACES | {"collective"},
    "gate": FOUNDATION | {"gate"},
    "device": FOUNDATION | {"gate", "device"},
    "engine": INTERFACES | {"collective", "gate", "engine"},
    "negotiation": INTERFACES | {"collective", "engine", "negotiation"},
    "staged": INTERFACES | {"collective", "gate", "engine", "device", "staged"},
    "runtime": INTERFACES
    | {"collective", "engine", "negotiation", "gate", "device", "staged", "device/cuda", "runtime"}
    | CONCRETE,
    "plugin": FOUNDATION | {"topology", "transport", "transport/tcp", "plugin"},
    "bindings": {"public", "bindings"},
    "kernels": {"kernels", "hwy"},
    "relay": set(),
    "bindings/kernels": {"kernels"},
    **{layer: FOUNDATION | {"transport", layer} for layer in CONCRETE},
    **{layer: FOUNDATION | {"gate", "device", layer} for layer in DEVICES},
}
# Layer of includes whose path has no folder, by the folder of the source; otherwise the runtime.
PLAIN = {
    "bindings": "bindings",
    "kernels": "kernels",
    "bindings/kernels": "kernels",
    "plugin": "plugin",
}
UNCHECKED = {"test", "bench", "fuzz"}  # folders that may include everything

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def layer_of(path: Path) -> str:
    """Return the layer to which a path belongs; "runtime" for a path without a folder."""
    parts = path.parts[:-1]
    if not parts:
        return "runtime"
    if parts[0] in ("include", "slipstream"):
        return "public"
    return "/".join(parts)


def included_layers(source: Path) -> list[tuple[int, str, str]]:
    """Return line number, path and layer for each line `#include "..."` in a source file."""
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            target = match.group(1)
            found.append((number, target, layer_of(Path(target))))
    return found


def violations(root: Path) -> list[str]:
    """Return a message for each include that violates the layers, and for each unknown folder."""
    problems: list[str] = []
    for folder in ("core", "kernels", "bindings", "plugin", "relay"):
        top = root / folder
        for source in sorted([*top.rglob("*.cc"), *top.rglob("*.h")]):
            relative = source.relative_to(top)
            if relative.parts[0] in UNCHECKED:
                continue
            layer = layer_of(relative) if folder == "core" else folder
            if folder == "bindings" and relative.parts[0] == "kernels":
                layer = "bindings/kernels"
            problems += check_source(source, layer)
    return problems


def check_source(source: Path, layer: str) -> list[str]:
    """Return the violations in one file."""
    if layer not in ALLOWED:
        return [f"{source}: the folder {layer!r} is no layer; layers are {sorted(ALLOWED)}"]
    problems: list[str] = []
    for number, target, target_layer in included_layers(source):
        if "/" not in target:
            target_layer = PLAIN.get(layer, target_layer)
        if target_layer not in ALLOWED[layer]:
            problems.append(
                f"{source}:{number}: {layer} includes {target} ({target_layer}); "
                f"it may include {sorted(ALLOWED[layer])}"
            )
    return problems


def main() -> int:
    """Print all violations in a tree (default: this checkout), and return 1 if there are any."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    problems = violations(root)
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
