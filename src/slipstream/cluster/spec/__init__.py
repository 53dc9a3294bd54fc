"""The description of a job, as a YAML file or a Python value; docs/job-file.md has its fields."""

from slipstream.cluster.spec.job_spec import JobSpec as JobSpec
from slipstream.cluster.spec.plan import ForecastPlan as ForecastPlan
from slipstream.cluster.spec.plan import read_plan as read_plan
from slipstream.cluster.spec.plan import read_plan_file as read_plan_file
from slipstream.cluster.spec.reading import check_job as check_job
from slipstream.cluster.spec.reading import check_place as check_place
from slipstream.cluster.spec.reading import fill_job as fill_job
from slipstream.cluster.spec.reading import read_job as read_job
