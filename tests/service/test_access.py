"""Who may send requests: the Host header, pages of other sites, and the token."""

import pytest
from starlette.datastructures import Headers

from memo_tta.service.access import AccessRules
from memo_tta.service.api_errors import ApiError
from memo_tta.service.settings import Settings
from tests.service.live import image_file


def refusal(
    settings: Settings, method: str = "POST", path: str = "/v1/predict", **headers: str
) -> str | None:
    """Return the name of the error that a request gets, or None if it is accepted."""
    named = {"host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        AccessRules(settings).check(method, path, Headers(named))
    except ApiError as error:
        return error.name
    return None


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "localhost.",
        "127.0.0.1:8000",
        "[::1]",
        "[::1]:8000",
        "192.168.1.7",
        "memo",
    ],
)
def test_a_service_answers_to_its_own_names_and_addresses(host):
    assert refusal(Settings(allowed_hosts=["Memo"]), host=host) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "", "a:b:1", "::"]
)
def test_other_names_are_refused_without_a_token(host):
    expected = None if host == "::" else "unknown_host"  # an address, written without its brackets
    assert refusal(Settings(), host=host) == expected
    authorised = {"authorization": "Bearer secret"}
    assert refusal(Settings(token="secret"), host=host, **authorised) is None


def test_the_name_that_the_operator_gave_is_its_own():
    assert refusal(Settings(host="models.example"), host="models.example:80") is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),  # not a browser
        ({"sec_fetch_site": "same-origin"}, None),
        ({"sec_fetch_site": "none"}, None),
        ({"sec_fetch_site": "cross-site"}, "cross_site"),
        ({"sec_fetch_site": "same-site", "origin": "http://localhost"}, "cross_site"),
        ({"origin": "http://localhost"}, None),
        ({"origin": "https://LOCALHOST"}, None),
        ({"origin": "http://localhost:81"}, "cross_site"),
        ({"origin": "http://evil.example"}, "cross_site"),
        ({"origin": "null"}, "cross_site"),
    ],
)
def test_pages_of_other_sites_cannot_have_anything_computed(headers, expected):
    for path in ("/v1/predict", "/page/predict", "/page/preview"):
        assert refusal(Settings(), path=path, **headers) == expected
    assert refusal(Settings(), "GET", "/", **headers) is None


@pytest.mark.parametrize(
    ("authorization", "is_right"),
    [
        ("Bearer open-sesame", True),
        ("bearer open-sesame", True),
        ("BEARER  open-sesame", True),
        ("Bearer open-sesam", False),
        ("Bearer", False),
        ("Basic open-sesame", False),
        ("open-sesame", False),
        ("", False),
        ("Bearer öpen-sesame", False),
    ],
)
def test_the_scheme_of_a_token_is_known_in_any_case(authorization, is_right):
    settings = Settings(token="open-sesame")
    assert refusal(settings, authorization=authorization) == (None if is_right else "unauthorized")


def test_no_response_repeats_the_host_header(open_client):
    client = open_client(token="open-sesame")
    headers = {"Host": "evil.example", "Authorization": "Bearer open-sesame"}
    for path in ("/static", "/static/", "//evil.example/static", "/v1/model/"):
        reply = client.get(path, headers=headers, follow_redirects=False)
        assert reply.status_code == 404 and "evil" not in reply.text + str(reply.headers)


def test_the_service_refuses_what_the_rules_refuse(open_client):
    client, files = open_client(), {"image": image_file()}
    assert client.get("/", headers={"Host": "evil.example"}).json()["error"] == "unknown_host"
    reply = client.post("/v1/predict", files=files, headers={"Sec-Fetch-Site": "cross-site"})
    assert (reply.status_code, reply.json()["error"]) == (403, "cross_site")
    assert client.post("/v1/predict", files=files).status_code == 200
