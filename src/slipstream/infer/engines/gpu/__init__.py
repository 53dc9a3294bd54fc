"""Engines that compute on a GPU, and the copies between host memory and the GPU that they share."""
