"""Run networks in MXNet itself and store them with their inputs and outputs.

This program runs in the Python that has MXNet 1.9.1. It reads cases as JSON on stdin, [[name,
expression, shapes], ...], and writes name-symbol.json, name-0000.params and name.npz into the
folder given as its argument. In expressions, `sym` makes operators; `x`, `y` and `z` are inputs.
"""

import json
import sys

import mxnet as mx
import numpy as np

INTEGERS = "indices"  # inputs of this name are integers from 0 to 4


def built(expression):
    """Return the symbol of an expression."""
    names = {name: mx.sym.var(name) for name in ("x", "y", "z", INTEGERS)}
    names.update({"sym": mx.sym, "mx": mx, "np": np, "contrib": mx.sym.contrib, "nn": mx.gluon.nn})
    found = eval(expression, names)
    if isinstance(found, mx.gluon.HybridBlock):
        found.initialize()
        found.hybridize()
        found = found(names["x"])
    return mx.sym.Group(found) if isinstance(found, (list, tuple)) else found


def drawn(name, shape, random):
    """Draw values for a parameter or input."""
    if name == INTEGERS:
        return random.integers(0, 5, shape).astype(np.float32)
    if name.endswith(("_var", "_moving_var", "running_var")):
        return random.uniform(0.5, 2, shape).astype(np.float32)
    scale = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 and name not in "xyz" else 1
    return (random.standard_normal(shape) / scale).astype(np.float32)


def run(name, expression, shapes, folder):
    random = np.random.default_rng(len(expression))
    symbol = built(expression)
    shapes = {key: tuple(shape) for key, shape in shapes.items()}
    labels = {key: None for key in symbol.list_arguments() if key.endswith("_label")}
    found, _, aux = symbol.infer_shape(**shapes)
    arguments = dict(zip(symbol.list_arguments(), found, strict=True))
    states = dict(zip(symbol.list_auxiliary_states(), aux, strict=True))
    arrays = {key: drawn(key, shape, random) for key, shape in {**arguments, **states}.items()}
    nd = {key: mx.nd.array(array, dtype=array.dtype) for key, array in arrays.items()}
    executor = symbol.bind(
        mx.cpu(), {key: nd[key] for key in arguments}, aux_states={key: nd[key] for key in states}
    )
    outputs = executor.forward(is_train=False)
    kept = [key for key in arguments if key not in shapes and key not in labels]
    prefix = f"{folder}/{name}"
    mx.model.save_checkpoint(
        prefix, 0, symbol, {key: nd[key] for key in kept}, {key: nd[key] for key in states}
    )
    results = zip(symbol.list_outputs(), outputs, strict=True)
    stored = {f"out:{key}": item.asnumpy() for key, item in results}
    np.savez(f"{prefix}.npz", **stored, **{f"in:{key}": arrays[key] for key in shapes})


if __name__ == "__main__":
    failed = []
    for case in json.load(sys.stdin):
        try:
            run(*case, sys.argv[1])
        except Exception as error:  # noqa: BLE001
            failed.append(f"{case}: {str(error)[-300:]}")
    sys.exit("\n".join(failed) or 0)
