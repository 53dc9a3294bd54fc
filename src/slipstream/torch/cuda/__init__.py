"""CUDA tensors: groups and works of collectives, and codecs that run on the GPU.

The codecs can be imported without a GPU, without Triton and without the engine.
"""
