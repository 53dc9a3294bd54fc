"""FastGPU's names for scripts that have them: groups of machines, and commands on them.

`python -m slipstream.fastgpu train.py` runs a script that says `import fastgpu` (or `ncluster`).
One difference matters: machines have a deadline (24 hours unless `make_job` is given another one),
at which they end themselves. With FastGPU they end when the script calls `kill`, so they go on, and
cost, if the script or its computer dies before.
"""

from slipstream.fastgpu import fastgpu_globals as fastgpu_globals
from slipstream.fastgpu.job import FastGpuJob as Job
from slipstream.fastgpu.job import FastGpuRun as Run
from slipstream.fastgpu.making import get_region as get_region
from slipstream.fastgpu.making import make_job as make_job
from slipstream.fastgpu.making import make_run as make_run
from slipstream.fastgpu.making import make_task as make_task
from slipstream.fastgpu.making import set_backend as set_backend
from slipstream.fastgpu.task import FastGpuTask as Task

__all__ = [
    "Job",
    "Run",
    "Task",
    "fastgpu_globals",
    "get_region",
    "make_job",
    "make_run",
    "make_task",
    "set_backend",
]
