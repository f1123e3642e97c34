"""onnxruntime's real CUDA provider on a machine without a GPU.

CUDA's libraries are stood in for by ones that keep CUDA's rules and compute nothing. The provider's
work on graphs is real: the nodes it takes, refusals of its kernels, captures, and the order of
calls.
"""
