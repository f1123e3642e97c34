"""onnxruntime's real CUDA provider on a machine without a GPU.

CUDA's libraries are stood in for by ones that keep CUDA's rules and compute nothing. What the
provider does with our graphs shows all the same: which nodes it takes, what its kernels refuse,
whether runs are captured, which calls are made and when.
"""
