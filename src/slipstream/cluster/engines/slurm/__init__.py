"""The engine of Slurm."""
