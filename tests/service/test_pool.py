"""Replicas and those who wait for them, without HTTP."""

import asyncio
import threading
import time

import pytest
import torch

from memo_tta.errors import ConfigError
from memo_tta.models.fingerprint import fingerprint
from memo_tta.service import pool as pool_module
from memo_tta.service.api_errors import ApiError
from memo_tta.service.deadline import Costs
from memo_tta.service.pool import Pool
from memo_tta.service.replica import Replica
from tests.nets import build_classifier, everything
from tests.service.live import PATIENCE, build_served, until


@pytest.fixture
def served():
    return build_served()


@pytest.fixture
def start(served):
    pools = []

    def build(replicas=1, queue_size=2):
        costs = Costs()
        pool = Pool(lambda is_wanted: Replica(served, costs, is_wanted), replicas, 1, queue_size)
        pools.append(pool)
        pool.start()
        until(lambda: pool.is_ready)
        return pool

    yield build
    for pool in pools:
        pool.close()


class Held:
    """Work that begins, and ends when it is told to."""

    def __init__(self, result=None):
        self.began, self.may_end, self.result = threading.Event(), threading.Event(), result

    def __call__(self, replica, is_wanted):
        self.began.set()
        assert self.may_end.wait(PATIENCE)
        return self.result


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def test_a_full_queue_refuses_and_says_when_to_come_back(start):
    pool = start(replicas=1, queue_size=2)

    async def scenario():
        works = [Held(n) for n in range(3)]
        tasks = [asyncio.create_task(pool.run(work)) for work in works]
        await asyncio.to_thread(works[0].began.wait, PATIENCE)
        assert (pool.busy, pool.depth) == (1, 2)
        with pytest.raises(ApiError) as refused:
            await pool.run(Held())
        assert refused.value.name == "busy" and int(refused.value.headers["Retry-After"]) >= 1
        for work in works:
            work.may_end.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]

    run(scenario())
    until(lambda: (pool.busy, pool.depth) == (0, 0))


def test_work_that_is_cancelled_gives_its_place_free_at_once(start):
    pool = start(replicas=1, queue_size=1)

    async def scenario():
        first, second, third = Held(), Held(), Held("third")
        task = asyncio.create_task(pool.run(first))
        await asyncio.to_thread(first.began.wait, PATIENCE)
        waiting = asyncio.create_task(pool.run(second))
        await asyncio.sleep(0)
        assert pool.depth == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert pool.depth == 0
        later = asyncio.create_task(pool.run(third))
        for work in (first, third):
            work.may_end.set()
        await task
        assert await later == "third" and not second.began.is_set()

    run(scenario())


def test_running_work_learns_that_it_is_not_wanted(start):
    pool, learnt = start(), threading.Event()
    began = threading.Event()

    def work(replica, is_wanted):
        began.set()
        until(lambda: not is_wanted())
        learnt.set()

    async def scenario():
        task = asyncio.create_task(pool.run(work))
        await asyncio.to_thread(began.wait, PATIENCE)
        task.cancel()
        await asyncio.to_thread(learnt.wait, PATIENCE)

    run(scenario())
    assert learnt.is_set()
    until(lambda: pool.busy == 0)


def test_a_replica_with_other_weights_is_replaced_and_counted(start, served, monkeypatch, caplog):
    monkeypatch.setattr(pool_module, "CHECK_EVERY", 2)
    pool, counted = start(), []
    pool.on_replaced = lambda: counted.append(1)

    def spoil(replica, is_wanted):
        next(replica.classifier.module.parameters()).data[0] += 1

    def look(replica, is_wanted):
        return fingerprint(replica.classifier.module)

    assert run(pool.run(look)) == served.fingerprint
    run(pool.run(spoil))
    until(lambda: pool.busy == 0)
    assert counted == [1] and pool.replaced == 1 and "replaced" in caplog.text
    assert run(pool.run(look)) == served.fingerprint


def test_after_a_mistake_the_replica_is_looked_at(start, served):
    pool = start()

    def fail(replica, is_wanted):
        next(replica.classifier.module.parameters()).data[0] += 1
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        run(pool.run(fail))
    until(lambda: pool.busy == 0)
    assert pool.replaced == 1


def test_closing_finishes_what_was_accepted_and_refuses_the_rest(start):
    pool = start(replicas=1, queue_size=2)

    async def scenario():
        works = [Held(n) for n in range(3)]
        tasks = [asyncio.create_task(pool.run(work)) for work in works]
        await asyncio.to_thread(works[0].began.wait, PATIENCE)
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        while not pool.closing:
            await asyncio.sleep(0.01)
        with pytest.raises(ApiError) as refused:
            await pool.run(Held())
        assert refused.value.name == "stopping" and not pool.is_ready
        for work in works:
            work.may_end.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]
        await closing

    run(scenario())


def test_before_the_first_replica_is_warm_nothing_is_taken():
    may_build = threading.Event()
    served = build_served()

    def build(is_wanted):
        assert may_build.wait(PATIENCE)
        return Replica(served, Costs(), is_wanted)

    pool = Pool(build, 1, 1, 4)
    pool.start()
    try:
        with pytest.raises(ApiError) as refused:
            pool.check_room()
        assert refused.value.name == "starting" and not pool.is_ready
        may_build.set()
        until(lambda: pool.is_ready)
    finally:
        may_build.set()
        pool.close()


def test_when_closed_every_thread_has_ended_though_one_was_warming_up(caplog):
    served, began = build_served(), threading.Event()
    ended = []

    class Lasting(Replica):
        """Its end takes a while, as that of many weights does."""

        def __del__(self):
            time.sleep(0.2)
            ended.append(torch.ones(2).sum())

    def build(is_wanted):
        if began.is_set():  # the second replica warms up until nobody wants it
            until(lambda: not is_wanted())
        began.set()
        return Lasting(served, Costs(), is_wanted)

    threads = set(threading.enumerate())
    pool = Pool(build, 2, 1, 4)
    pool.start()
    until(lambda: pool.alive == 1)
    pool.close()
    assert set(threading.enumerate()) <= threads and len(ended) == 2
    assert not caplog.text, "a warm-up that was called off is no mistake"


@pytest.mark.parametrize("method", ["source", "memo"])
def test_every_method_that_draws_views_is_warm(method, monkeypatch):
    served, built = build_served(method=method), []
    build = served.build
    monkeypatch.setattr(
        served, "build", lambda name, *others: built.append((name, others[-1])) or build(name, *others)
    )
    Replica(served, Costs())
    drawing = {name for name, options in served.methods.items() if "n_views" in options}
    assert {"tta", "memo"} < drawing <= {name for name, _ in built}
    assert ("memo", served.methods["memo"]) in built or method != "memo", "as most requests will want it"


def test_a_replica_that_cannot_be_built_leaves_the_pool_unready(caplog):
    def build(is_wanted):
        raise RuntimeError("no memory")

    pool = Pool(build, 1, 1, 4)
    pool.start()
    until(lambda: "RuntimeError: no memory" in caplog.text)
    assert not pool.is_ready
    pool.close()


def test_replicas_are_copies_and_the_classifier_that_was_given_stays_as_it_was():
    classifier = build_classifier("batch-norm")
    before = everything(classifier.module)
    served = build_served(classifier)
    replica = Replica(served, Costs())
    mine = {p.data_ptr() for p in replica.classifier.module.parameters()}
    assert not mine & {p.data_ptr() for p in classifier.module.parameters()}
    assert everything(classifier.module) == before and replica.is_intact


def test_each_thread_computes_with_its_share_of_the_cores(start):
    pool = start(replicas=2)
    assert run(pool.run(lambda replica, is_wanted: torch.get_num_threads())) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "tent"}, "tent: needs more than the one point"),
        ({"options": {"memo": {"reset": "anchor"}}}, "memo: needs more than the one point"),
        ({"max_views": 3}, "memo: takes 4 views, and max_views is 3"),
        ({"method": "ttt"}, "ttt: GroupNormNet has no rotation head"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(settings, message):
    with pytest.raises(ConfigError, match=message):
        build_served(**settings)
