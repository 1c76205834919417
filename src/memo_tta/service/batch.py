"""Several images of one request, each a task of its own in the pool."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from memo_tta.service.api_errors import ApiError

Image = TypeVar("Image")
Answer = dict[str, Any]


async def predict_each(
    images: Sequence[Image], predict: Callable[[Image], Awaitable[Answer]], lanes: int
) -> list[Answer]:
    """Return an answer or an error for each image, in order; raise the error if there was room for none.

    At most `lanes` images are in the pool at once, so that a batch does not fill the queue alone. A lane that
    finds the queue full ends and leaves its image to the others; the last one reports that it is busy.
    """
    answers = dict[int, Answer | ApiError]()
    waiting, active = deque(range(len(images))), lanes

    async def work() -> None:
        nonlocal active
        while waiting:
            position = waiting.popleft()
            try:
                answers[position] = await predict(images[position])
            except Exception as error:
                problem = ApiError.from_exception(error)
                if problem.name == "busy" and active > 1:
                    waiting.appendleft(position)
                    break
                answers[position] = problem
        active -= 1

    await asyncio.gather(*(work() for _ in range(lanes)))
    in_order = [answers[position] for position in range(len(images))]
    if all(isinstance(answer, ApiError) and answer.status == 503 for answer in in_order):
        first = in_order[0]
        assert isinstance(first, ApiError)
        raise first
    return [answer.content if isinstance(answer, ApiError) else answer for answer in in_order]
