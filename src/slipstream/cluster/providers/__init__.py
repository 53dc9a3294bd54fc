"""Providers create the machines of a cluster; every machine is then a host for ssh."""
