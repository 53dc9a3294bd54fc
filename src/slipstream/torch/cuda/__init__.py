"""CUDA tensors: the groups and works of their collectives, and codecs that run on the GPU.

The codecs can be imported without a GPU, without Triton and without the engine.
"""
