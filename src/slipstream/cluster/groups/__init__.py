"""Named groups of machines without a job: their records, their life, and commands on them."""
