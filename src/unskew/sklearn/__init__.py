"""Rankers as scikit-learn has estimators."""

from unskew.sklearn.ranker import Ranker as Ranker
