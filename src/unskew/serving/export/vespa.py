"""`unskew export RUN --to vespa`: a model, and the rank profile that feeds it.

NAME.profile goes to `schemas/SCHEMA/`, model.onnx of a network to `files/`, NAME_trees.json (XGBoost's JSON) to
`models/`. A linear model is an expression of the profile. References: Vespa's documentation, "Ranking with ONNX
models", "Ranking with XGBoost models" and "Ranking expressions". Features are functions that read attributes of
their name; put another rank feature in a function where it comes of the query. A split sends a value left where it
is below `split_condition`, as 64-bit floats; an attribute of type float has the 32 bits that the model was trained
on.
"""

import json
from collections.abc import Sequence
from typing import Any

from unskew.serving.export.forms import EngineFeature, Form, identifier
from unskew.serving.export.opensearch import numbered_trees

RERANKED = 100
"""Documents that the second phase ranks again, unless the profile is changed."""


def files(name: str, features: Sequence[EngineFeature], form: Form) -> dict[str, Any]:
    """The files of a model."""
    name, model = identifier(name), form.model
    if form.kind == "ONNX":
        return {"model.onnx": model, f"{name}.profile": onnx_profile(name, features)}
    if form.kind == "linear":
        weighed = zip(model.matrix[0], features, strict=True)
        parts = [f"{float(weight)!r} * {each.name}" for weight, each in weighed]
        return {f"{name}.profile": profile(name, features, " + ".join([*parts, repr(float(model.bias[0]))]))}
    file, text = f"{name}_trees.json", json.dumps(numbered_trees(features, model)) + "\n"
    return {file: text, f"{name}.profile": profile(name, features, f'xgboost("{file}")')}


def profile(name: str, features: Sequence[EngineFeature], score: str, head: str = "") -> str:
    """The text of a rank profile that ranks by an expression of functions."""
    functions = "\n".join(function(each.name, expression(each)) for each in features)
    return f"""rank-profile {name} inherits default {{
{head}{functions}
    second-phase {{
        expression: {score}
        rerank-count: {RERANKED}
    }}
}}
"""


def onnx_profile(name: str, features: Sequence[EngineFeature]) -> str:
    """The text of a rank profile that feeds functions to an ONNX model."""
    cells = ", ".join(f"{{d0:0,d1:{at}}}: {each.name}" for at, each in enumerate(features))
    head = f"""    onnx-model {name}_model {{
        file: files/model.onnx
        input "features": {name}_features
        output "score": score
    }}
{function(f"{name}_features", f"tensor<float>(d0[1],d1[{len(features)}]):{{ {cells} }}")}
"""
    return profile(name, features, f"sum(onnx({name}_model).score)", head)


def function(name: str, text: str) -> str:
    """A function of a profile, on one line, so that braces in a text are no braces of the schema."""
    return f"    function {name}() {{\n        expression: {text}\n    }}"


def expression(feature: EngineFeature) -> str:
    """The ranking expression of a feature.

    >>> expression(EngineFeature("price", "price", "number", fallback=2.5))
    'if (isNan(attribute(price)), 2.5, attribute(price))'
    >>> expression(EngineFeature("brand_acme", "brand", "value", ("acme",)))
    'if (attribute(brand) == "acme", 1, 0)'
    """
    value = f"attribute({identifier(feature.field)})"
    # quotes and backslashes stand behind a backslash, other letters as they are
    named = ", ".join(json.dumps(each, ensure_ascii=False) for each in feature.values)
    if feature.kind == "number":
        return f"if (isNan({value}), {number(feature.fallback)}, {value})"
    if feature.kind == "value":
        return f"if ({value} == {named}, 1, 0)"
    if feature.kind == "other":
        return f'if ({value} in [{named}, ""], 0, 1)'
    return f'if ({value} == "", 1, 0)' if feature.category else f"if (isNan({value}), 1, 0)"


def number(value: float) -> str:
    """A number with a point, which expressions want before an exponent.

    >>> number(1e-05), number(2.5), number(-1e20)
    ('1.0e-05', '2.5', '-1.0e+20')
    """
    text = repr(float(value))
    return text if "." in text else text.replace("e", ".0e")
