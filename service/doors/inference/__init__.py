"""The door for tensors: the Open Inference Protocol (version 2) under `/v2`."""
