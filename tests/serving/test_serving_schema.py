"""Schemathesis over the OpenAPI of a real server: what is valid is answered as described, what is not is refused.

Longer, by hand: UNSKEW_FUZZ=2000 python -m pytest tests/serving/test_serving_schema.py, or against a server

    st run http://127.0.0.1:8000/openapi.json --max-examples 2000 --exclude-checks positive_data_acceptance

with `expected-statuses = ["400", "401", "404", "405", "413", "415", "422"]` in schemathesis.toml, under
`[checks.negative_data_rejection]`, since what is too long is a 413. `positive_data_acceptance` is left out: which
features a model takes is no matter of the schema.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

pytest.importorskip("fastapi")
schemathesis = pytest.importorskip("schemathesis")

from hostile import make_run, running  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi import checks as known  # noqa: E402

from unskew.serving.service.impressions import ImpressionLog  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*")
MANY = int(os.environ.get("UNSKEW_FUZZ", "0"))
TOKEN = "a-token-of-many-letters"
OPERATIONS = [
    *(("POST", path) for path in ("/v1/rank", "/v1/rank/batch", "/v1/clicks")),
    *(("GET", path) for path in ("/v1/models", "/healthz", "/readyz", "/metrics")),
]
CHECKS = [
    not_a_server_error,
    known.status_code_conformance,
    known.content_type_conformance,
    known.response_schema_conformance,
    known.response_headers_conformance,
    known.negative_data_rejection,
    known.missing_required_header,
    known.unsupported_method,
    known.ignored_auth,
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The schema of a server that asks for a token, which calls bring."""
    place = tmp_path_factory.mktemp("schema")
    pages = ImpressionLog(place / "log")
    with running(make_run(place / "run"), impressions=pages, token=TOKEN) as server:
        found = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
        found.config.checks.negative_data_rejection.expected_statuses = [
            "400",
            "401",
            "404",
            "405",
            "413",
            "415",
            "422",
        ]
        yield found


def test_every_operation_is_tried(api: Any) -> None:
    assert {(each.ok().method.upper(), each.ok().path) for each in api.get_all_operations()} == {*OPERATIONS}


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_server_is_as_it_says(method: str, path: str, mode: Any, api: Any) -> None:
    if mode is schemathesis.GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("nothing to bend")

    @settings(
        max_examples=MANY or 10,
        derandomize=not MANY,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=api[path][method].as_strategy(generation_mode=mode))
    def tried(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, headers={"Authorization": f"Bearer {TOKEN}"})

    tried()
