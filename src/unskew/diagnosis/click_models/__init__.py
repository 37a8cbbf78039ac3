"""Click models of a log alone: how people read its pages, and what they find relevant.

`fit` fits a click model, by its name or with settings. `fit_and_compare` fits several and compares them by the
clicks of pages that they have not seen. `save_model` writes a fitted one into a folder, `load_model` reads it.

>>> import unskew
>>> lists = unskew.make_lists(queries=20, seed=0)
>>> log = unskew.simulate(lists, "position", pages=2000, seed=0)
>>> model = unskew.click_models.fit(log, "pbm")
>>> model.relevance().column_names[:4]
['query_id', 'doc_id', 'relevance', 'standard_error']
"""

from typing import Unpack

from unskew.diagnosis.click_models.browsing import DCTR as DCTR
from unskew.diagnosis.click_models.browsing import PBM as PBM
from unskew.diagnosis.click_models.browsing import RCM as RCM
from unskew.diagnosis.click_models.browsing import RCTR as RCTR
from unskew.diagnosis.click_models.browsing import UBM as UBM
from unskew.diagnosis.click_models.chains import CCM as CCM
from unskew.diagnosis.click_models.chains import DBN as DBN
from unskew.diagnosis.click_models.chains import DCM as DCM
from unskew.diagnosis.click_models.chains import SDBN as SDBN
from unskew.diagnosis.click_models.chains import CascadeModel as CascadeModel
from unskew.diagnosis.click_models.comparison import ClickModelComparison as ClickModelComparison
from unskew.diagnosis.click_models.comparison import fit_and_compare as fit_and_compare
from unskew.diagnosis.click_models.contract import ClickModel as ClickModel
from unskew.diagnosis.click_models.em import Prior as Prior
from unskew.diagnosis.click_models.fitted import CLICK_MODELS as CLICK_MODELS
from unskew.diagnosis.click_models.fitted import FittedClickModel as FittedClickModel
from unskew.diagnosis.click_models.fitted import find_model, fit_model
from unskew.diagnosis.click_models.fitted import load_model as load_model
from unskew.diagnosis.click_models.fitted import save_model as save_model
from unskew.diagnosis.click_models.mixture import ModelMixture as ModelMixture
from unskew.diagnosis.click_models.pages import AnyLog
from unskew.diagnosis.click_models.pages import ClickPages as ClickPages
from unskew.diagnosis.click_models.pages import read_pages as read_pages
from unskew.options.base import LogReading


def fit(log: AnyLog, model: ClickModel | str = "pbm", **reading: Unpack[LogReading]) -> FittedClickModel:
    """Fit a click model to a log in memory, an Arrow table of impressions, or Parquet files.

    `model` is a name of `CLICK_MODELS`, names joined by +, or a model with settings: `UBM(ranks=20)`. `reading`
    says how files are read, as by `read_pages`.
    """
    name, chosen = find_model(model)
    return fit_model(name, chosen, read_pages(log, **reading))
