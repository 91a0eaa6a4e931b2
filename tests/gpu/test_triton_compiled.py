"""Every Triton kernel at small, typical and large sizes, compiled for three GPUs: no spills."""

import pytest
import torch
from compiling import TARGETS, launches, resources
from draws import TRAINING

from evalgrad import _native, _triton

CASES = [
    pytest.param(name, args, id=f"{name}-{place}")
    for name, several in TRAINING.items()
    for place, args in enumerate(several)
]


def test_every_operator_is_compiled():
    served = {name for name, bodies in _native.operators.items() if bodies.triton is not None}
    assert served == TRAINING.keys()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "args"), CASES)
def test_compiles_without_spills(name, args, target):
    system = _native.operators[name].triton
    found = launches(_triton.implementation(system, name).run, args)
    assert found
    for launch in found:
        used = resources(launch, target)
        assert used["spills"] == 0, (launch.kernel.__name__, used)


@pytest.mark.parametrize("target", TARGETS)
def test_the_scaling_of_a_gradient_compiles_without_spills(target):
    args = torch.empty(8, 512 * 512, device="meta"), torch.empty(8, device="meta")
    (launch,) = launches(_triton.implementation("rows", "scale_rows").run, args)
    assert resources(launch, target)["spills"] == 0
