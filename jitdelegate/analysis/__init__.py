"""What `python -m jitdelegate.analyze` finds out about a model, and how it shows it."""
