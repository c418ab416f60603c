"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "a8e8d07353d72ced059cdd2cbf0cb530"
