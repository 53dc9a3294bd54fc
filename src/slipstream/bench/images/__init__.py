"""Benchmark of pipelines that read image files and label them, beside other pipelines."""
