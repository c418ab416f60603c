"""Forms that multiply, one file each: they cut a product into chunks, and choose source, multiply and walk."""
