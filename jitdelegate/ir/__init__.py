"""The intermediate representation: graphs of tensors and nodes, scalar expressions and kernel forms.

Only the compile path uses it; it imports numpy (for constants) and nothing of the layers above.
"""
