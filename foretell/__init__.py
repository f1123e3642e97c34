"""From a trained forecasting transformer to a verified ONNX service."""
