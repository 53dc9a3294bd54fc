"""The examples in the help texts of `slipstream cluster`."""

_EXAMPLES = {
    "ls": (
        "slipstream cluster ls",
        "slipstream cluster ls --all --json",
    ),
    "status": (
        "slipstream cluster status train",
        'slipstream cluster status "#3" --json',
    ),
    "attach": ("slipstream cluster attach train",),
    "logs": (
        "slipstream cluster logs train",
        "slipstream cluster logs train --rank 0",
    ),
    "events": ("slipstream cluster events train",),
    "down": ("slipstream cluster down train",),
    "replay": ("slipstream cluster replay train --name again",),
    "ssh": (
        "slipstream cluster ssh train",
        "slipstream cluster ssh train node1 nvidia-smi",
        "slipstream cluster ssh lab task1 nvidia-smi",
    ),
    "tmux": ("slipstream cluster tmux train node1",),
    "scp": (
        "slipstream cluster scp train node1:model.pt .",
        "slipstream cluster scp train data.csv node1:data.csv",
    ),
}


def examples(command: str) -> str:
    """Return the end of the help text of a command.

    Args:
        command: Name of the command.
    """
    lines = "".join(f"\n  {line}" for line in _EXAMPLES[command])
    return f"\b\n[bold]Examples[/bold]{lines}\n"
