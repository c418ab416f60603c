"""Kernels to machine code: `front_end.py` calls Numba, `back_end.py` NVVM and nvJitLink, `template_store.py` caches
what they make, `compile_templates.py` does it for all kernels of a plan.
"""
