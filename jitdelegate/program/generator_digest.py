"""What the sources of the code generators hash to; scripts/update_generator_digest.py writes it, a test compares it."""

GENERATOR_DIGEST = "671bd2e1924b60c598a00c6c8c74fe43"
