"""Hostile requests leave a service as it was: its memory, its files, its weights and its answers."""

from tests.conftest import times
from tests.service.hostile_clients import attack
from tests.service.serve_process import serve_process

REQUESTS, WARM = times(400, 20_000), times(150, 500)


def test_hostile_requests_leave_a_service_as_it_was(weights):
    with serve_process("--weights", weights, "--replicas", 2, OMP_NUM_THREADS="1") as service:
        damage = attack(service, REQUESTS, WARM)
    assert not damage.unexpected
    assert damage.memory[1] <= 1.2 * damage.memory[0]
    assert damage.open_files[1] <= damage.open_files[0]
    assert damage.answers[0] == damage.answers[1] and "label" in damage.answers[0]
    assert damage.wrong_fingerprints == 0 and damage.replaced == 0
