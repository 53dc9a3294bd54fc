"""PyTorch's adapter: the backend "slipstream" of torch.distributed, for CPU tensors.

PyTorch finds the backend by itself, through its entry point. Importing this package registers it
where PyTorch was told not to look (TORCH_DEVICE_BACKEND_AUTOLOAD=0).
"""

import torch as torch  # without PyTorch, the error should say so

from slipstream.torch.compression import compress as compress
from slipstream.torch.overlap import overlap as overlap
from slipstream.torch.plugin import register as register

register()
