"""Who may send a request: the names of this service, the pages it accepts requests from, and the token."""

import hmac
import ipaddress
import socket
from collections.abc import Collection

from starlette.datastructures import Headers

from memo_tta.service.api_errors import ApiError
from memo_tta.service.settings import Settings

PUBLIC_PATHS = ("/", "/healthz", "/readyz", "/openapi.json")  # no token needed; nor below /static/
READ_ONLY = ("GET", "HEAD", "OPTIONS")  # methods that compute nothing


class AccessRules:
    """The rules that every request must keep, before its body is read."""

    def __init__(self, settings: Settings):
        self._token, self._names = settings.token, _own_names(settings)

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise an ApiError if the request breaks a rule."""
        host = headers.get("host", "")
        # A page of another site whose name leads here could use the service as if it were its own. It cannot
        # know a token, though.
        if self._token is None and not _is_own_name(host, self._names):
            raise ApiError("unknown_host")
        if method not in READ_ONLY and _is_cross_site(headers, host):
            raise ApiError("cross_site")
        is_public = path in PUBLIC_PATHS or path.startswith("/static/")
        if self._token is not None and not is_public:
            _check_token(self._token, headers.get("authorization", ""))


def _own_names(settings: Settings) -> frozenset[str]:
    names = ("localhost", socket.gethostname(), settings.host, *settings.allowed_hosts)
    return frozenset(name.lower() for name in names)


def _is_own_name(host: str, names: Collection[str]) -> bool:
    """Return whether a Host header names this service; an address cannot be taken over like a name."""
    name = _without_port(host).lower().removesuffix(".")
    return name in names or _is_address(name)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    is_port = colon and port.isascii() and port.isdecimal()
    return (name if is_port else host).removeprefix("[").removesuffix("]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_cross_site(headers: Headers, host: str) -> bool:
    """Return whether a browser sent the request for a page that is not this service's own."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")  # of older browsers
    return origin is not None and origin.partition("://")[2].lower() != host.lower()


def _check_token(token: str, authorization: str) -> None:
    scheme, _, given = authorization.partition(" ")
    is_right = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
    if scheme.lower() != "bearer" or not is_right:
        raise ApiError("unauthorized", headers={"WWW-Authenticate": "Bearer"})
