"""Every loss over ranks: through DDP and FSDP2 the gradient is that of one process with the
concatenated batch.
"""

import copy
import math
import pickle
from functools import partial

import pytest
import ranks
import torch
import torch.distributed as dist
from cases import CASES, IGNORED
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import evalgrad as eg
from evalgrad import _labels
from evalgrad.distributed import global_batch

BATCH, FEATURES = 8, 3
SHARDS = {2: ((4, 4), (5, 3), (8, 0)), 4: ((2, 2, 2, 2), (4, 1, 2, 1), (3, 0, 4, 1))}
EXACT = 1e-10


class Scorer(nn.Module):
    """Scores of any shape from a few features per sample."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.linear = (
            shape,
            nn.Linear(FEATURES, max(1, torch.Size(shape).numel())).double(),
        )

    def forward(self, features):
        return self.linear(features).reshape(len(features), *self.shape)


def drawn(case, seed=5):
    """A scorer, features and labels for a row of the table; the items of a ranking loss are its
    samples.
    """
    generator = torch.Generator().manual_seed(seed)
    x, target = case.draw(generator)
    features = torch.randn(BATCH, FEATURES, dtype=torch.float64, generator=generator)
    if case.axes_are_items:
        shape, target = (
            tuple(x.shape[1:]),
            target[torch.randint(len(x), (BATCH,), generator=generator)],
        )
    else:
        shape, target = (), torch.arange(BATCH) % 3 % 2
    return Scorer(shape), features, target


def hidden(target, sizes, what):
    """Labels with which rank 0 has no positives or no pixels at all."""
    own = torch.arange(len(target)) < sizes[0]
    own = own.reshape(-1, *[1] * (target.ndim - 1))
    return torch.where(
        own & (target > 0 if what == "no positives" else True),
        0 if what == "no positives" else IGNORED,
        target,
    )


def by_ddp(model, world):
    return DistributedDataParallel(model)


def by_fsdp(model, world):
    return fully_shard(model, mesh=init_device_mesh("cpu", (world,)))


def gradients(model):
    grads = [
        p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        for p in model.parameters()
    ]
    return torch.cat([g.flatten() for g in grads])


def error_over_ranks(rank, world, sizes, wrap, model, features, target, loss, whole):
    """Distance of the ranks' gradient with `loss` from the gradient of one process with the loss
    `whole`.
    """
    alone, own = copy.deepcopy(model), slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    whole(alone(features), target).backward()
    wrapped = wrap(model, world)
    loss(wrapped(features[own]), target[own]).backward()
    return (gradients(wrapped) - gradients(alone)).abs().max().item()


def _table(rank, world, wrap):
    """The error of every row of the table with every shard."""
    errors = {}
    for case in CASES:
        for sizes in SHARDS[world]:
            loss = partial(case, ignore_index=IGNORED)
            for what in (
                ("all", "no positives", "no pixels") if sizes == SHARDS[world][1] else ("all",)
            ):
                model, features, target = drawn(case)
                target = target if what == "all" else hidden(target, sizes, what)
                args = rank, world, sizes, wrap, model, features, target
                errors[case.name, sizes, what] = error_over_ranks(*args, global_batch(loss), loss)
    return errors


@pytest.mark.parametrize("wrap", [by_ddp, by_fsdp])
@pytest.mark.parametrize("world", [2, 4])
def test_every_loss_has_the_gradient_of_one_process(world, wrap):
    for errors in ranks.run(world, _table, wrap):
        assert not isinstance(errors, str), errors
        assert {key: error for key, error in errors.items() if not error < EXACT} == {}


def _without(rank, world):
    """The error of the ranks' mean of local losses, which is what DDP does by itself."""
    named = {case.name: case for case in CASES}
    errors = {}
    for name in (
        "lovasz_softmax",
        "lovasz_hinge",
        "loss_max_pooling",
        "smooth_topk",
        "direct_average_precision",
    ):
        model, features, target = drawn(named[name])
        args = rank, world, SHARDS[world][1], by_ddp, model, features, target
        errors[name] = error_over_ranks(*args, named[name], named[name])
    return errors


def test_without_the_global_batch_the_gradient_is_another():
    for errors in ranks.run(2, _without):
        assert {name: error for name, error in errors.items() if error < 1e-3} == {}


class _Traffic:
    """Bytes that this rank hands to collectives, by wrapping the two that the library uses."""

    def __init__(self):
        self.sent, self.originals = (
            0,
            {name: getattr(dist, name) for name in ("all_reduce", "all_gather")},
        )

    def __enter__(self):
        dist.all_reduce = lambda x, **o: self._count(x, "all_reduce", x, **o)
        dist.all_gather = lambda parts, x, **o: self._count(x, "all_gather", parts, x, **o)
        return self

    def _count(self, x, name, *args, **options):
        self.sent += x.numel() * x.element_size()
        return self.originals[name](*args, **options)

    def __exit__(self, *_):
        for name, original in self.originals.items():
            setattr(dist, name, original)


BINNED = (
    {"bins": 16},
    {"bins": 5, "classes": "all"},
    {"bins": 16, "classes": [1, 3], "reduction": "sum"},
    {"bins": 7, "weight": torch.tensor([0.5, 2.0, 1.0, 3.0], dtype=torch.float64)},
    {"bins": 7, "metric": "dice"},
    {"bins": 7, "per_image": True},
    {"bins": 7, "reduction": "none"},
)


def _summed(loss):
    return lambda *tensors: loss(*tensors).sum()


def _binned(rank, world):
    errors, classes = {}, 4
    for sizes in SHARDS[world]:
        for i, options in enumerate(BINNED):
            loss = eg.LovaszSoftmaxLoss(ignore_index=IGNORED, **options)
            target = torch.randint(classes, (BATCH, 6))
            target[2, :4] = IGNORED
            model, features = (
                Scorer((classes, 6)),
                torch.randn(BATCH, FEATURES, dtype=torch.float64),
            )
            args = rank, world, sizes, by_ddp, model, features, target
            errors[sizes, i] = error_over_ranks(*args, _summed(global_batch(loss)), _summed(loss))
    return errors


@pytest.mark.parametrize("world", [2, 4])
def test_binned_lovasz_over_ranks(world):
    for errors in ranks.run(world, _binned):
        assert not isinstance(errors, str), errors
        assert {key: error for key, error in errors.items() if not error < EXACT} == {}


def _binned_traffic(rank, world, sides, dtype):
    """Bytes sent, value, and value of one process, for images of these sides."""
    results = []
    for side in sides:
        logits, target = (
            torch.randn(2 * world, 3, side, side).to(dtype),
            torch.randint(3, (2 * world, side, side)),
        )
        loss, own = eg.LovaszSoftmaxLoss(bins=32), slice(2 * rank, 2 * rank + 2)
        with _Traffic() as traffic:
            value = global_batch(loss)(logits[own], target[own])
        results.append((traffic.sent, value.item(), loss(logits, target).item()))
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_traffic_of_binned_lovasz_does_not_depend_on_the_pixels(dtype):
    counts = 3 * 8 + 3 * 2 * 32 * 8  # int64: pixels per class, and per class, kind and bin
    for results in ranks.run(2, _binned_traffic, (4, 40), dtype):
        for sent, value, alone in results:
            assert sent == counts + torch.finfo(dtype).bits // 8
            assert value == pytest.approx(alone, rel=1e-6)


def _undeclared_on_one_rank(rank, world):
    """Where labels are not read: a rank without any declared label."""
    _labels.readable = lambda x: False  # as on a GPU; this process ends with the function
    logits, target = torch.randn(2, 3, 8, requires_grad=True), torch.randint(3, (2, 8))
    loss = global_batch(eg.LovaszSoftmaxLoss(bins=16))
    right = loss(logits, target).item()
    return right, loss(logits, target + 9 * rank).item()


def test_an_undeclared_label_is_nan_on_every_rank():
    for right, wrong in ranks.run(2, _undeclared_on_one_rank):
        assert math.isfinite(right)
        assert math.isnan(wrong)


def _named_arguments(rank, world):
    """Masks go with their items; weights stay; an index tells which items are the same."""
    own = slice(3 * rank, 3 * rank + 3)
    scores, target, mask = (
        torch.randn(6),
        torch.tensor([1, 0, 0, 1, 0, 0]),
        torch.tensor([1, 1, 0, 1, 1, 1]) > 0,
    )
    ap = global_batch(eg.average_precision_hinge_loss)
    masked = (
        ap(scores[own], target=target[own], mask=mask[own]),
        eg.average_precision_hinge_loss(scores, target, mask=mask),
    )
    logits, label, weight = (
        torch.randn(6, 3),
        torch.tensor([0, 1, 2, 2, 1, 0]),
        torch.tensor([1.0, 2.0, 3.0]),
    )
    topk = partial(eg.smooth_topk_loss, k=2)
    weighted = (
        global_batch(topk)(logits[own], label[own], weight=weight),
        topk(logits, label, weight=weight),
    )

    def total(x, index=None):
        return x.sum()

    index = torch.tensor([4, 2, 0, 2, 4, 1])  # items 2 and 4 are held by both ranks
    x = torch.arange(6.0)[own].requires_grad_()
    value = global_batch(total, once="index")(x, index=index[own])
    value.backward()
    repeated = value, torch.tensor(0.0 + 1 + 2 + 5)
    gradient = x.grad, world * torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]][rank])
    return [torch.allclose(a, b) for a, b in (masked, weighted, repeated, gradient)]


def test_what_belongs_to_the_items_is_gathered_and_nothing_else():
    assert ranks.run(2, _named_arguments) == [[True] * 4] * 2


def _in_a_subgroup(rank, world):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    value = global_batch(lambda x: x.max(), groups[rank // 2])(torch.tensor([float(rank)]))
    return value.item()


def test_a_group_keeps_to_itself():
    assert ranks.run(4, _in_a_subgroup) == [1.0, 1.0, 3.0, 3.0]


def _compiled(rank, world):
    """The error of a compiled loss, whose exchange stays outside of the graphs."""
    model, features, target = drawn(next(case for case in CASES if case.name == "lovasz_softmax"))
    loss = global_batch(eg.LovaszSoftmaxLoss())
    compiled = torch.compile(lambda *tensors: loss(*tensors), backend="eager")
    return error_over_ranks(
        rank, world, (5, 3), by_ddp, model, features, target, compiled, eg.lovasz_softmax_loss
    )


def test_a_compiled_loss_exchanges_outside_of_its_graphs():
    errors = ranks.run(2, _compiled)
    assert all(error < EXACT for error in errors), errors


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_one_process_compiles_without_a_break():
    torch._dynamo.reset()
    loss, (logits, target) = (
        global_batch(eg.LovaszSoftmaxLoss()),
        (
            torch.randn(2, 3, 4),
            torch.randint(3, (2, 4)),
        ),
    )
    compiled = torch.compile(lambda *tensors: loss(*tensors), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, target), loss(logits, target))


def test_one_process_has_the_loss_itself():
    logits, target = torch.randn(2, 3, 4), torch.randint(3, (2, 4))
    for loss in (eg.LovaszSoftmaxLoss(), eg.LovaszSoftmaxLoss(bins=8), eg.lovasz_softmax_loss):
        assert torch.equal(global_batch(loss)(logits, target), loss(logits, target))


def test_a_wrapped_module_is_a_submodule():
    wrapped = global_batch(eg.LovaszSoftmaxLoss(weight=torch.ones(3)), dim=1)
    assert list(wrapped.state_dict()) == ["loss.weight"]
    for same in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert repr(same) == repr(wrapped)


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (TypeError, {"loss": 0.5}, "global_batch: `loss` must be a function or a module; got 0.5"),
        (
            TypeError,
            {"gather": "mask"},
            "global_batch: `gather` must be a tuple of names; got 'mask'",
        ),
        (
            ValueError,
            {"once": "item"},
            "global_batch: `once` must be one of the names in `gather`; got 'item'",
        ),
        (
            TypeError,
            {"gather": (3,)},
            r"global_batch: `gather` must be a tuple of names; got \(3,\)",
        ),
        (
            ValueError,
            {"gather": ("target", "masks")},
            "global_batch: `gather` must be names of arguments of the loss; got 'masks'",
        ),
        (
            ValueError,
            {"loss": eg.LovaszSoftmaxLoss(), "gather": ["nope"]},
            "global_batch: `gather` must be names of arguments of the loss; got 'nope'",
        ),
        (TypeError, {"dim": "text"}, "global_batch: `dim` must be an integer; got 'text'"),
        (TypeError, {"dim": math.nan}, "global_batch: `dim` must be an integer; got nan"),
        (TypeError, {"group": [0, 1]}, "global_batch: `group` must be a process group or None"),
    ],
)
def test_messages(error, options, message):
    with pytest.raises(error, match=message):
        global_batch(**{"loss": eg.lovasz_softmax_loss, **options})


@pytest.mark.parametrize("dim", [7, -4])
def test_an_axis_that_is_none_is_told_on_one_process_too(dim):
    logits, target = torch.randn(2, 3, 5), torch.ones(2, 5, dtype=torch.long)
    message = f"global_batch: `dim` must be an axis of every tensor, here from -3 to 2; got {dim}"
    with pytest.raises(ValueError, match=message):
        global_batch(eg.LovaszSoftmaxLoss(), dim=dim)(logits, target)
    with pytest.raises(ValueError, match="here from -2 to 1; got 2"):
        global_batch(eg.LovaszSoftmaxLoss(), dim=2)(logits, target=target)


@pytest.mark.parametrize(
    "loss",
    [lambda scores, **named: scores.sum(), torch.add, eg.FBeta(), torch.nn.BCEWithLogitsLoss()],
)
def test_usual_names_and_those_that_a_loss_may_take_are_gathered(loss):
    names = ("target", "mask", "index", *(["own"] if not isinstance(loss, torch.nn.Module) else []))
    assert global_batch(loss, gather=names).gather == names
