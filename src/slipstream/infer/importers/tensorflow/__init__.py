"""TensorFlow's models as graphs."""
