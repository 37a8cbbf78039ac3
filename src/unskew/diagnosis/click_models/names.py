"""The click models by name, and names and settings turned into models and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unskew.diagnosis.click_models.browsing import PBM, UBM
from unskew.diagnosis.click_models.chain_models import CCM, DBN, DCM, SDBN, CascadeModel
from unskew.diagnosis.click_models.contract import ClickModel
from unskew.diagnosis.click_models.mixture import ModelMixture
from unskew.diagnosis.click_models.rates import DCTR, RCM, RCTR
from unskew.errors import ConfigError
from unskew.settings import checked, named, table_of

CLICK_MODELS: dict[str, type[ClickModel]] = {
    "rcm": RCM,
    "rctr": RCTR,
    "dctr": DCTR,
    "pbm": PBM,
    "cascade": CascadeModel,
    "dcm": DCM,
    "sdbn": SDBN,
    "dbn": DBN,
    "ubm": UBM,
    "ccm": CCM,
}
"""Click models by name; names joined by + are a mixture of them."""
MIXTURE = "mixture"


def find_model(model: ClickModel | str) -> tuple[str, ClickModel]:
    """A model and its name: settings as they are, `pbm` with its defaults, `pbm+dctr` a mixture of two."""
    if isinstance(model, ClickModel):
        return model_name(model), model
    if not isinstance(model, str):
        raise ConfigError("give a name such as pbm, or a click model", argument="model", value=model)
    parts = tuple(named("model", part.strip(), CLICK_MODELS) for part in model.split("+"))
    return model, parts[0] if len(parts) == 1 else ModelMixture(models=parts)


def model_name(model: ClickModel) -> str:
    """What a model is called."""
    if isinstance(model, ModelMixture):
        return "+".join(model_name(part) for part in model.models)
    return next(name for name, kind in CLICK_MODELS.items() if kind is type(model))


def settings_of(model: ClickModel) -> dict[str, Any]:
    """A model as a table of its settings, with its name."""
    if isinstance(model, ModelMixture):
        own = model.model_dump(exclude={"models"})
        return {"name": MIXTURE, **own, "models": [settings_of(part) for part in model.models]}
    return {"name": model_name(model), **model.model_dump()}


def model_of(settings: Mapping[str, Any], key: str = "model") -> ClickModel:
    """The model that such a table describes."""
    if settings.get("name") != MIXTURE:
        return table_of(key, settings, CLICK_MODELS)
    inner = enumerate(settings.get("models", ()))
    models = tuple(model_of(part, f"{key}.models.{at}") for at, part in inner)
    rest = {name: value for name, value in settings.items() if name != "name"}
    return checked(ModelMixture, rest | {"models": models}, key)
