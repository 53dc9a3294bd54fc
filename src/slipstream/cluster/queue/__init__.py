"""Several jobs on one set of machines: who runs when, on which GPUs, and who waits for what."""

from slipstream.cluster.queue.daemon import QueueDaemon as QueueDaemon
from slipstream.cluster.queue.jobs import JobQueue as JobQueue
from slipstream.cluster.queue.jobs import JobRecord as JobRecord
from slipstream.cluster.queue.jobs import JobSubmission as JobSubmission
from slipstream.cluster.queue.pool import MachinePool as MachinePool
from slipstream.cluster.queue.runner import QueueRunner as QueueRunner
from slipstream.cluster.queue.shapes import QueueGpu as QueueGpu
from slipstream.cluster.queue.shapes import QueueMachine as QueueMachine
from slipstream.cluster.queue.shapes import ResourceRequest as ResourceRequest
from slipstream.cluster.queue.store import QueueStore as QueueStore
