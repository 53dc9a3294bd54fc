"""Data-parallel training with two additional lines in a script for one process, as in PAISoar.

optimizer = ReplicatedVarsOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
schedule = smooth_exponential_decay(optimizer, warmup_steps=500, decay_steps=1000)
"""

from slipstream.train.replicated import ReplicatedVarsOptimizer as ReplicatedVarsOptimizer
from slipstream.train.schedule import SmoothExponentialDecay as SmoothExponentialDecay
from slipstream.train.schedule import smooth_exponential_decay as smooth_exponential_decay
