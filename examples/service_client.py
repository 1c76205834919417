"""A client of `memo serve` that needs nothing but Python: one image, or several in one request.

    memo serve &
    python examples/service_client.py photo.jpg
    python examples/service_client.py --method restore --url http://127.0.0.1:8000 one.jpg two.jpg three.jpg

The token of a service that asks for one is read from MEMO_SERVE_TOKEN.
"""

import argparse
import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

ATTEMPTS = 5
TIMEOUT = 60  # seconds for one request; the service itself answers within its deadline
LONGEST_WAIT = 30.0  # seconds, whatever the service asks for

# What the status of a prediction means for whoever uses it.
STATUS = {
    "adapted": "adapted to this image",
    "averaged": "averaged over views of this image",
    "source": "the model as it is, as asked for",
    "gated": "the model as it is: it was sure, or the image is clean",
    "no_layer": "the model as it is: it has no batch norm",
    "not_finite": "the model as it is: adapting gave no finite numbers",
    "deadline": "the model as it is: no time to adapt; ask again with a longer deadline_ms",
}


class Refused(Exception):
    """The service refused a request: {"error": a name for programs, "message": a sentence for people}."""


def post(url: str, fields: dict[str, Any]) -> Any:
    """Send JSON and return the response; on 503, wait as long as the service says and retry."""
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("MEMO_SERVE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    request = Request(url, json.dumps(fields).encode(), headers)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urlopen(request, timeout=TIMEOUT) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                if error.code != 503 or attempt == ATTEMPTS:
                    raise Refused(_reason(error)) from None
                seconds = _seconds_to_wait(error)
            print(f"busy, waiting {seconds:g} s", file=sys.stderr)
            time.sleep(seconds)
    raise AssertionError("the last attempt returns or raises")


def _reason(error: HTTPError) -> str:
    body = error.read()
    try:
        refusal = json.loads(body)
        return f"{refusal['error']}: {refusal['message']}"
    except (ValueError, TypeError, KeyError):  # a proxy in between answered
        return f"HTTP {error.code}"


def _seconds_to_wait(error: HTTPError) -> float:
    """Return the seconds of Retry-After; one second if there are none, as a proxy may send a date."""
    text = error.headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT) if text.isdecimal() else 1.0


def encoded(path: Path) -> str:
    """Return an image file as base64."""
    return base64.b64encode(path.read_bytes()).decode()


def predict(url: str, image: Path, **options: Any) -> dict[str, Any]:
    """Predict one image."""
    return post(f"{url}/v1/predict", {"image": encoded(image), **options})


def predict_batch(url: str, images: list[Path], **options: Any) -> list[dict[str, Any]]:
    """Predict several images in one request: for each, in order, a prediction or an error.

    The options and the deadline are those of the whole request. An image whose error is "busy" can be sent
    again. A request may hold as many images as `max_batch` in the limits of /v1/model says, 16 by default.
    """
    fields = {"images": [encoded(path) for path in images], **options}
    return post(f"{url}/v1/predict:batch", fields)["results"]


def describe(answer: dict[str, Any]) -> str:
    """Return a prediction, or the error of one image of a batch, as a line."""
    if "error" in answer:
        return f"{answer['error']}: {answer['message']}"
    source = answer["source"]
    return (
        f"{answer['label']} {answer['score']:.2f}, before {source['label']} {source['score']:.2f} "
        f"({STATUS.get(answer['status'], answer['status'])})"
    )


def main() -> None:
    """Predict the images that the command line names, and print a line for each."""
    parser = argparse.ArgumentParser(description="Predict images by a running `memo serve`.")
    parser.add_argument("images", nargs="+", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--method", help="by default, the service's")
    arguments = parser.parse_args()
    options = {"method": arguments.method} if arguments.method else {}
    try:
        if len(arguments.images) == 1:
            answers = [predict(arguments.url, arguments.images[0], **options)]
        else:
            answers = predict_batch(arguments.url, arguments.images, **options)
    except URLError as error:
        sys.exit(f"{arguments.url}: {error.reason}")
    except (Refused, OSError) as error:
        sys.exit(str(error))
    for path, answer in zip(arguments.images, answers, strict=True):
        print(f"{path}: {describe(answer)}")
    if any("error" in answer for answer in answers):
        sys.exit(1)


if __name__ == "__main__":
    main()
