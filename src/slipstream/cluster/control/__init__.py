"""The controller: it plans a run, brings up its hosts, starts it, follows it and gives all back."""
