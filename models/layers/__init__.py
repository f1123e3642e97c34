"""Layers the architectures share, one a file.

Shapes: `batch` windows, `time` steps, `channels` series, `d_model` features of a token.
"""
