"""The same model as the users of other servers would serve it, a script each.

Each takes the graph of `torch.onnx.export` (or, the torch one, the checkpoint) and a port, and
answers one window a request.
"""
