"""How tensors of several ranks become one."""

import enum


class Reduction(enum.Enum):
    """The value is the engine's name; Adasum has none."""

    AVERAGE = "average"
    SUM = "sum"
    ADASUM = "adasum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


Average = Reduction.AVERAGE
Sum = Reduction.SUM
Adasum = Reduction.ADASUM
Min = Reduction.MIN
Max = Reduction.MAX
Product = Reduction.PRODUCT
