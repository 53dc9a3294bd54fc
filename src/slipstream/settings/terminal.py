"""The variable by which users turn colours off in every program (https://no-color.org)."""

import os
from collections.abc import Mapping


def has_styles(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether text on a terminal may be bold or coloured: NO_COLOR is unset or empty."""
    return not environ.get("NO_COLOR")
