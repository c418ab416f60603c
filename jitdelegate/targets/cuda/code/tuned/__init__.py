"""What was measured on GPUs, and the package ships. There is nothing yet: no GPU has been measured.

- Tables of tuned kernels, one `.tuned` file per kind of GPU, such as `sm_90-132.tuned`, written by
  `python -m scripts.tune_kernels run`.
- `measured.py`: constants of the cost model, written by `scripts/gpu_check.sh --apply`.
"""
