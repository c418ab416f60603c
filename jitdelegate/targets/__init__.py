"""Targets turn a lowered graph into machine code; each implements every kernel form once."""
