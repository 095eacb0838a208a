"""Tensor-parallel overlap: cases, their times, the best configuration, and its files.

>>> from sweeps.tuner import TPOverlapTuner, TPOverlapTunerConfig
>>> config = TPOverlapTunerConfig(model_name="Qwen/Qwen3-0.6B", max_tp_size=2)
>>> for recommendation in TPOverlapTuner(config).run(write=False).recommendations:
...     print(recommendation)  # doctest: +SKIP
"""

from sweeps.tuner.cases import Case
from sweeps.tuner.recommend import Recommendation
from sweeps.tuner.report import TuningReport
from sweeps.tuner.settings import TPOverlapTunerConfig
from sweeps.tuner.times import PassTimes, Result
from sweeps.tuner.tuner import TPOverlapTuner
from sweeps.tuner.validate import validate_file

__all__ = [
    "Case",
    "PassTimes",
    "Recommendation",
    "Result",
    "TPOverlapTuner",
    "TPOverlapTunerConfig",
    "TuningReport",
    "validate_file",
]
