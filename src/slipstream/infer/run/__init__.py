"""Load compiled models and run them: single calls, and streams of inputs."""
