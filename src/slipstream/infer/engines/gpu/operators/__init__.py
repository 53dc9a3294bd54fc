"""The operators of graphs as functions of PyTorch.

Every function takes a `NodeCall` and returns the results of the node, which PyTorch records. A node
is refused if its operator has no function here, or if the sizes of its results depend on the data.
The error names the operator.
"""

from slipstream.infer.engines.gpu.operators.elementwise import ELEMENTWISE
from slipstream.infer.engines.gpu.operators.node_call import Operator
from slipstream.infer.engines.gpu.operators.products import PRODUCTS
from slipstream.infer.engines.gpu.operators.reductions import REDUCTIONS
from slipstream.infer.engines.gpu.operators.shapes import SHAPES

OPERATORS: dict[str, Operator] = {**ELEMENTWISE, **PRODUCTS, **REDUCTIONS, **SHAPES}
