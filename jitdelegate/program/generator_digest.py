"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "869b27934e9b277f8ffcf364ea4a99b6"
