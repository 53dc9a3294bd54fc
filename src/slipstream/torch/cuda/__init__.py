"""CUDA tensors: codecs that run on the GPU.

Everything here can be imported without a GPU, without Triton and without the engine.
"""
