"""Tensor-parallel overlap: cases, their times, the best configuration, and its files.

>>> from sweeps.tuner.settings import TPOverlapTunerConfig
>>> from sweeps.tuner.tuner import TPOverlapTuner
>>> config = TPOverlapTunerConfig(model_name="Qwen/Qwen3-0.6B", max_tp_size=2)
>>> for recommendation in TPOverlapTuner(config).run(write=False).recommendations:
...     print(recommendation)  # doctest: +SKIP
"""
