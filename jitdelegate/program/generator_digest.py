"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "f186b3a25efb7bff17a9eddf59a1c095"
