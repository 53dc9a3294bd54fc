"""Training on a Ray cluster, with Horovod's RayExecutor:

    from slipstream.horovod.ray import RayExecutor

    executor = RayExecutor(RayExecutor.create_settings(), num_workers=4)
    executor.start()
    losses = executor.run(train, kwargs={"epochs": 2})
    executor.shutdown()

The package needs `pip install 'slipstream[ray]'`.
"""

from slipstream.horovod.ray.executor import RayExecutor as RayExecutor
from slipstream.horovod.ray.executor import RaySettings as RaySettings
