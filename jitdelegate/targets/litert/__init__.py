"""The target for which nothing is compiled: LiteRT runs the whole model."""
