"""`python -m slipstream.cluster.spec`: print the documentation page of the job file."""

from slipstream.cluster.spec.page import job_page

print(job_page(), end="")
