"""The engine of Kubernetes."""
