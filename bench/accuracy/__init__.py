"""The published recipes, trained: what is reached of the published errors."""
