"""Compiles kernels to machine code: `front_end.py` calls Numba, `back_end.py` NVVM and nvJitLink, `template_store.py`
caches their results, and `compile_templates.py` compiles all kernels of a plan.
"""
