"""Machines of AWS: EC2, with EFS for shared folders; needs the extra `aws`."""
