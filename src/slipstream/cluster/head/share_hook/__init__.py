"""A folder for PYTHONPATH, whose `sitecustomize` limits TensorFlow's memory of a GPU."""
