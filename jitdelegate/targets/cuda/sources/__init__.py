"""What products read. `conv_problem.py`, `phases.py` and `attention_problem.py` say it on the host; `pixel_gather.py`,
`pixel_tiles.py`, `tile_loader.py` and `line_loader.py` load it on the device; `stored_weights.py` has weights as they
lie in memory.
"""
