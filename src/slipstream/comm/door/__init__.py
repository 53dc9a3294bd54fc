"""Connections that strangers may have opened, until they have proved the job key."""
