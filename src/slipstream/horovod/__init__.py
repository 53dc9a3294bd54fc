"""Horovod's API over Slipstream's engine: change one import line, keep the script.

    import slipstream.horovod.torch as hvd

`docs/horovod.md` is the guide for those who come from Horovod.
"""
