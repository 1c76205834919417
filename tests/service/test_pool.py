"""The pool of replicas and its queue, without HTTP."""

import asyncio
import gc
import threading
import time
import weakref
from contextlib import suppress
from functools import partial

import pytest
import torch
from starlette.types import Message

from memo_tta.errors import ConfigError, InputError
from memo_tta.models.fingerprint import fingerprint
from memo_tta.service import pool as pool_module
from memo_tta.service.api_errors import ApiError
from memo_tta.service.deadline import AdaptationTimes
from memo_tta.service.handlers import Handlers
from memo_tta.service.pool import Pool
from memo_tta.service.replica import Replica
from tests.nets import build_classifier, everything
from tests.service.live import TIMEOUT, build_replica, build_served_model, wait_until


@pytest.fixture
def served_model():
    return build_served_model()


@pytest.fixture
def start(served_model):
    pools = []

    def build(replicas=1, queue_size=2):
        times = AdaptationTimes()
        pool = Pool(
            lambda is_cancelled: build_replica(served_model, times, is_cancelled), replicas, 1, queue_size
        )
        pools.append(pool)
        pool.start()
        wait_until(lambda: pool.is_ready)
        return pool

    yield build
    for pool in pools:
        pool.close()


class BlockedWork:
    """Work that blocks until it may end."""

    def __init__(self, result=None):
        self.began, self.may_end, self.result = threading.Event(), threading.Event(), result

    def __call__(self, replica, is_cancelled):
        self.began.set()
        assert self.may_end.wait(TIMEOUT)
        return self.result


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT))


def test_a_full_queue_refuses_and_says_when_to_come_back(start):
    pool = start(replicas=1, queue_size=2)

    async def scenario():
        works = [BlockedWork(n) for n in range(3)]
        tasks = [asyncio.create_task(pool.run(work)) for work in works]
        await asyncio.to_thread(works[0].began.wait, TIMEOUT)
        assert (pool.n_busy, pool.queue_depth) == (1, 2)
        with pytest.raises(ApiError) as raised:
            await pool.run(BlockedWork())
        assert raised.value.name == "busy" and int(raised.value.headers["Retry-After"]) >= 1
        for work in works:
            work.may_end.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]

    run(scenario())
    wait_until(lambda: (pool.n_busy, pool.queue_depth) == (0, 0))


def test_a_full_queue_estimates_the_wait_from_recent_durations(start):
    pool = start(replicas=1, queue_size=2)

    async def scenario():
        works = [BlockedWork() for _ in range(3)]
        tasks = [asyncio.create_task(pool.run(work)) for work in works]
        await asyncio.to_thread(works[0].began.wait, TIMEOUT)
        for seconds in (4.0, 4.0, 400.0):
            pool._durations.add(seconds)
        with pytest.raises(ApiError) as raised:
            pool.check_capacity()
        assert raised.value.headers["Retry-After"] == "8", "two wait, and one slow task does not count"
        for work in works:
            work.may_end.set()
        await asyncio.gather(*tasks)

    run(scenario())


def test_work_that_is_cancelled_gives_its_place_free_at_once(start):
    pool = start(replicas=1, queue_size=1)

    async def scenario():
        first, second, third = BlockedWork(), BlockedWork(), BlockedWork("third")
        task = asyncio.create_task(pool.run(first))
        await asyncio.to_thread(first.began.wait, TIMEOUT)
        waiting = asyncio.create_task(pool.run(second))
        await asyncio.sleep(0)
        assert pool.queue_depth == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert pool.queue_depth == 0
        later = asyncio.create_task(pool.run(third))
        for work in (first, third):
            work.may_end.set()
        await task
        assert await later == "third" and not second.began.is_set()

    run(scenario())


def test_running_work_learns_that_it_is_cancelled(start):
    pool, noticed = start(), threading.Event()
    began = threading.Event()

    def work(replica, is_cancelled):
        began.set()
        wait_until(is_cancelled)
        noticed.set()

    async def scenario():
        task = asyncio.create_task(pool.run(work))
        await asyncio.to_thread(began.wait, TIMEOUT)
        task.cancel()
        await asyncio.to_thread(noticed.wait, TIMEOUT)

    run(scenario())
    assert noticed.is_set()
    wait_until(lambda: pool.n_busy == 0)


def test_a_replica_with_other_weights_is_replaced_and_counted(start, served_model, monkeypatch, caplog):
    monkeypatch.setattr(pool_module, "CHECK_EVERY", 2)
    pool, counted = start(), []
    pool.on_replaced = lambda: counted.append(1)

    def change_weights(replica, is_cancelled):
        next(replica.classifier.module.parameters()).data[0] += 1

    def look_up(replica, is_cancelled):
        return fingerprint(replica.classifier.module)

    assert run(pool.run(look_up)) == served_model.fingerprint
    run(pool.run(change_weights))
    wait_until(lambda: pool.n_busy == 0)
    assert counted == [1] and pool.n_replaced == 1 and "replaced" in caplog.text
    assert run(pool.run(look_up)) == served_model.fingerprint


def test_after_a_mistake_the_replica_is_checked(start, served_model, caplog):
    pool = start()

    def fail(replica, is_cancelled):
        next(replica.classifier.module.parameters()).data[0] += 1
        raise RuntimeError("in the middle")

    with pytest.raises(ApiError, match="internal error"):
        run(pool.run(fail))
    wait_until(lambda: pool.n_busy == 0)
    assert pool.n_replaced == 1 and pool.fingerprints() == [served_model.fingerprint]
    assert "in the middle" in caplog.text


def test_weights_that_changed_unnoticed_are_found_when_the_replica_rests(start, served_model):
    pool = start()

    def change(replica, is_cancelled):
        next(replica.classifier.module.parameters()).data[0] += 1

    run(pool.run(change))
    wait_until(lambda: pool.n_replaced == 1)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_request_without_memory_is_refused_and_the_next_one_is_not(start, monkeypatch, error):
    pool = start()
    monkeypatch.setattr(pool_module, "RETRY_SECONDS", 0.01)
    checks = iter([error, error])

    def fail(replica, is_cancelled):
        raise error

    def is_intact(replica):
        if (problem := next(checks, None)) is not None:
            raise problem
        return True

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "is_intact", property(is_intact))  # no memory for the check either
        with pytest.raises(ApiError, match="not enough memory"):
            run(pool.run(fail))
        assert run(pool.run(lambda replica, is_cancelled: 3)) == 3
    assert pool.n_replaced == 0 and pool.n_alive == 1


def test_closing_finishes_what_was_accepted_and_refuses_the_rest(start):
    pool = start(replicas=1, queue_size=2)

    async def scenario():
        works = [BlockedWork(n) for n in range(3)]
        tasks = [asyncio.create_task(pool.run(work)) for work in works]
        await asyncio.to_thread(works[0].began.wait, TIMEOUT)
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        while not pool.is_closing:
            await asyncio.sleep(0.01)
        with pytest.raises(ApiError) as raised:
            await pool.run(BlockedWork())
        assert raised.value.name == "stopping" and not pool.is_ready
        for work in works:
            work.may_end.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]
        await closing

    run(scenario())


def test_before_the_first_replica_is_warm_nothing_is_taken():
    may_build = threading.Event()
    served_model = build_served_model()

    def build(is_cancelled):
        assert may_build.wait(TIMEOUT)
        return build_replica(served_model, is_cancelled=is_cancelled)

    pool = Pool(build, 1, 1, 4)
    pool.start()
    try:
        with pytest.raises(ApiError) as raised:
            pool.check_capacity()
        assert raised.value.name == "starting" and not pool.is_ready
        may_build.set()
        wait_until(lambda: pool.is_ready)
    finally:
        may_build.set()
        pool.close()


def test_when_closed_every_thread_has_ended_though_one_was_warming_up(caplog):
    served_model, began = build_served_model(), threading.Event()
    ended = []

    class SlowToDelete(Replica):
        """A replica whose deletion takes a while, as with many weights."""

        def __del__(self):
            time.sleep(0.2)
            ended.append(torch.ones(2).sum())

    def build(is_cancelled):
        if began.is_set():  # the second replica warms up until it is cancelled
            wait_until(is_cancelled)
        began.set()
        return SlowToDelete(served_model, AdaptationTimes(), is_cancelled)

    threads = set(threading.enumerate())
    pool = Pool(build, 2, 1, 4)
    pool.start()
    wait_until(lambda: pool.n_alive == 1)
    pool.close()
    assert set(threading.enumerate()) <= threads and len(ended) == 2
    assert not caplog.text, "a cancelled warm-up is no error"


@pytest.mark.parametrize("method", ["source", "memo"])
def test_every_method_that_draws_views_is_warm(method, monkeypatch):
    served_model, built = build_served_model(method=method), []
    build = served_model.build_method
    monkeypatch.setattr(
        served_model,
        "build_method",
        lambda name, *others: built.append((name, others[-1])) or build(name, *others),
    )
    build_replica(served_model)
    drawing = {name for name, options in served_model.methods.items() if "n_views" in options}
    assert {"tta", "memo"} < drawing <= {name for name, _ in built}
    assert ("memo", served_model.methods["memo"]) in built or method != "memo", (
        "the default method is warm with its own options"
    )


def test_a_replica_that_cannot_be_built_leaves_the_pool_unready(caplog):
    def build(is_cancelled):
        raise RuntimeError("no memory")

    pool = Pool(build, 1, 1, 4)
    pool.start()
    wait_until(lambda: "RuntimeError: no memory" in caplog.text)
    assert not pool.is_ready
    pool.close()


def test_replicas_are_copies_and_the_classifier_that_was_given_stays_as_it_was():
    classifier = build_classifier("batch-norm")
    before = everything(classifier.module)
    served_model = build_served_model(classifier)
    replica = build_replica(served_model)
    mine = {p.data_ptr() for p in replica.classifier.module.parameters()}
    assert not mine & {p.data_ptr() for p in classifier.module.parameters()}
    assert everything(classifier.module) == before and replica.is_intact


def test_each_thread_computes_with_its_share_of_the_cores(start):
    pool = start(replicas=2)
    assert run(pool.run(lambda replica, is_cancelled: torch.get_num_threads())) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "tent"}, "tent: takes 64 images at once, but a request has one"),
        ({"options": {"memo": {"reset": "anchor"}}}, "memo: carries state from one image to the next"),
        ({"max_views": 3}, "memo: n_views: expected at most max_views = 3, got 4"),
        ({"method": "ttt"}, "ttt: GroupNormNet has no rotation head"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(settings, message):
    with pytest.raises(ConfigError, match=message):
        build_served_model(**settings)


class Held:
    """Something that takes much memory."""


def is_freed(attempt) -> bool:
    """Return whether what a failing coroutine held is freed without the garbage collector."""
    held = Held()
    found = weakref.ref(held)

    async def fail(held) -> None:
        with suppress(InputError):
            await attempt(held)

    gc.disable()
    try:
        asyncio.run(fail(held))
        del held
        for _ in range(100):
            if found() is None:
                return True
            time.sleep(0.05)
        return False
    finally:
        gc.enable()


async def failing(held):
    await asyncio.sleep(0)
    raise InputError("no image")


async def never_disconnects() -> Message:
    await asyncio.sleep(TIMEOUT)
    return {}


def test_a_failure_keeps_nothing(start):
    """A cycle of the exception, its frames and the future would keep an image until the next collection."""
    pool = start()

    def fail(held, replica, is_cancelled):
        raise InputError("no image")

    assert is_freed(lambda held: pool.run(partial(fail, held)))
    handlers = Handlers(build_served_model())
    assert is_freed(lambda held: handlers._cancel_on_disconnect(failing(held), never_disconnects))
