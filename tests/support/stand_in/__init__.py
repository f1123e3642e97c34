"""onnxruntime's real CUDA provider on a machine without a GPU.

Replacements of CUDA's libraries keep CUDA's rules and compute nothing. The provider's
work on graphs is real: the nodes it takes, refusals of its kernels, captures, and the order of
calls.
"""
