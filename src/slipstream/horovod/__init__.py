"""Horovod's API, implemented on Slipstream's engine.

A script for Horovod needs only its import line changed:

    import slipstream.horovod.torch as hvd

`docs/horovod.md` is the guide for users of Horovod.
"""
