"""What the ranks of a host see besides the code: mounts, files of buckets, and data."""
