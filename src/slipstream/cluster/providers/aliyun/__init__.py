"""Machines of Alibaba Cloud: ECS and VPC, with NAS for shared folders, by signed HTTPS requests."""
