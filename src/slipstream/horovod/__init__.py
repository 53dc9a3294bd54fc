"""Horovod's API on Slipstream's engine. A script for Horovod changes one import line:

    import slipstream.horovod.torch as hvd

`docs/horovod.md` is the guide for users of Horovod.
"""
