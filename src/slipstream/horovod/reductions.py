"""How tensors of several ranks become one."""

import enum


class Reduction(enum.IntEnum):
    """The numbers are Horovod's, which some scripts pass on."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5

    @property
    def engine_name(self) -> str:
        """What the engine calls it; it does not know Adasum."""
        return self.name.lower()


Average = Reduction.AVERAGE
Sum = Reduction.SUM
Adasum = Reduction.ADASUM
Min = Reduction.MIN
Max = Reduction.MAX
Product = Reduction.PRODUCT
