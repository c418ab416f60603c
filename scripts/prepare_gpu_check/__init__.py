"""Compiles the programs that `scripts/gpu_check.sh` runs on a GPU machine. This needs no GPU.

- `__main__.py`: `python -m scripts.prepare_gpu_check --output DIR --bundle NAME`.
- `source.py`: a model with inputs and expected outputs. `forms.py`, `families.py` and `quantized.py`: graphs of a few
  operators. `networks.py`: whole networks, for single images and for batches. `decoder.py`: steps with a cache.
- `folder.py`: compiles sources into a bundle, as far as there is room.
- `dry_run.py`: the whole check on a simulated GPU.
"""
