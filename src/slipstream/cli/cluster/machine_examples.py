"""The examples in the help texts of the commands about machines."""

_EXAMPLES = {
    "up": (
        "slipstream cluster up lab --on aws --machines 4 --type g5.xlarge --deadline 8h",
        "slipstream cluster up lab --on aliyun --type ecs.gn7i-c8g1.2xlarge --spot --yes",
    ),
    "stop": ("slipstream cluster stop lab",),
    "start": ("slipstream cluster start lab",),
    "extend": ("slipstream cluster extend lab 4h",),
    "exec": (
        "slipstream cluster exec lab nvidia-smi",
        "slipstream cluster exec lab --machine task0 -- python train.py",
        "slipstream cluster exec lab --detach -- python train.py",
    ),
    "addip": (
        "slipstream cluster addip lab",
        "slipstream cluster addip lab 203.0.113.7/32",
    ),
    "mount": (
        "slipstream cluster mount lab",
        "slipstream cluster mount lab ./shared",
    ),
    "images": ("slipstream cluster images ubuntu-24 --on aws",),
    "gpus": ("slipstream cluster gpus A100 --on aws --json",),
    "gc": (
        "slipstream cluster gc",
        "slipstream cluster gc --on aws --yes",
    ),
    "cost": (
        "slipstream cluster cost",
        "slipstream cluster cost lab --json",
    ),
    "top": (
        "slipstream cluster top train",
        "slipstream cluster top train --json",
    ),
    "tensorboard": (
        "slipstream cluster tensorboard train",
        "slipstream cluster tensorboard lab --logdir runs",
    ),
}


def machine_examples(command: str) -> str:
    """Return the end of the help text of a command.

    Args:
        command: Name of the command.
    """
    lines = "".join(f"\n  {line}" for line in _EXAMPLES[command])
    return f"\b\n[bold]Examples[/bold]{lines}\n"
