"""From a trained model to a verified bundle."""
