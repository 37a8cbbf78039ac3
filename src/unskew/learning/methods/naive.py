"""Click data as they are: what every debiasing method has to beat.

Reference: the "Click Data" and "Naive" rows of Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased
Learning to Rank", KDD 2022, and of every paper since Joachims et al., "Unbiased Learning-to-Rank with Biased
Feedback", WSDM 2017.

    minimise  - sum_q sum_k c_qk log softmax_k(s_q)  /  sum_q sum_k c_qk

Differences from the paper: padding is masked; the pointwise, pairwise and LambdaRank losses are offered too.
"""

from __future__ import annotations

from typing import Literal

from unskew.learning.methods.skeletons import ClickLogits, LossConfig


class Naive(LossConfig):
    """Learn from clicks as if they were labels: a ranking loss on the score itself."""

    module = ClickLogits
    name: Literal["naive"] = "naive"
