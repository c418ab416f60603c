"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "44383a3d47f76cfa32117ef07aae2fc9"
