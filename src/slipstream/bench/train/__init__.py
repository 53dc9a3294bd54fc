"""Complete training over Slipstream and over gloo."""
