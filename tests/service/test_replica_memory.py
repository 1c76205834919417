"""What a replica takes: many views run in parts, so that it stays within its limit."""

import pytest

from memo_tta.methods.footprint import measure_footprint
from memo_tta.service import model
from tests.service.live import build_served_model, image_file, live_service


@pytest.fixture
def limit(monkeypatch):
    """Bytes that hold the network and four views, as far as MEMO is concerned."""
    served = build_served_model()
    footprint = measure_footprint(served.build_method("memo", served.classifier, {}), points=1)
    monkeypatch.setattr(model, "GAPS", 1)
    monkeypatch.setattr(model, "REPLICA_BYTES", footprint.model + 4 * footprint.view)
    return model.REPLICA_BYTES


def test_views_that_would_not_fit_run_in_parts(limit):
    served = build_served_model()
    assert served.build_method("memo", served.classifier, {}).options.micro_batch == 4
    assert served.replica_bytes == limit
    with live_service(served) as service:
        assert service.predict(image_file(), n_views=11).status == 200


def test_the_operator_s_own_choice_stays(limit):
    served = build_served_model(options={"memo": {"n_views": 4, "micro_batch": 32}})
    assert served.build_method("memo", served.classifier, {}).options.micro_batch == 32
    assert served.replica_bytes > limit


def test_small_models_need_no_parts():
    served = build_served_model()
    assert served.build_method("memo", served.classifier, {}).options.micro_batch is None
    assert served.replica_bytes < model.REPLICA_BYTES
