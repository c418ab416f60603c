"""Multiply-adds of vectors: floats, bytes and words in `products.py`, floats by narrow weights in
`narrow_products.py`, taps of depthwise convolutions in `depthwise_terms.py`.
"""
