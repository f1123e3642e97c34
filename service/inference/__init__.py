"""`/v2`: the Open Inference Protocol."""
