"""Wrong calls of all public names, some thousands: each gets a sentence that names the function and
the argument, never an error of torch's own, and never an answer.
"""

import copy
import functools
import inspect
import pickle

import numpy as np
import pytest
import torch
from wrong_calls import LABELS, LISTS, MAPS, MARKS, NAMES, RIGHT, found, meta_calls, wrong_calls

import evalgrad as eg
from evalgrad import decisions, distributed, metrics
from evalgrad._module import LossModule
from evalgrad.distributed import CrossBatchMemory

# Not in the table: they take what is not an argument, or have tests of their own.
ELSEWHERE = {"Tversky", "SizeLabels", "direct_loss", "distributed.GlobalBatch"}


def test_every_public_name_is_called():
    public = {name for name in vars(eg) if not name.startswith("_") and callable(found(name))}
    public |= {f"metrics.{name}" for name in metrics.__all__}
    public |= {f"decisions.{name}" for name in decisions.__all__}
    public |= {f"distributed.{name}" for name in distributed.__all__}
    losses = {name for name in public if name.endswith("Loss")}
    assert public - losses - ELSEWHERE == {name.partition(":")[0] for name in RIGHT}


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_call_is_right(name):
    found(name)(**RIGHT[name])


def speakers(name):
    """Who may speak: the function, for a module the function that it calls, for its call itself."""
    called = found(name)
    if inspect.ismethod(called):
        return {type(called.__self__).__name__}
    function = getattr(called, "function", None)
    return {called.__name__, getattr(function, "__name__", called.__name__)}


def failure(call):
    """What is wrong with the answer to a wrong call; None if it is a sentence."""
    try:
        answer = call()
    except (TypeError, ValueError) as error:
        said = str(error)
        speaker, _, rest = said.partition(": ")
        if speaker in speakers(call.name) and f"`{call.argument}`" in rest:
            return None
        return f"{call}: {type(error).__name__}: {said[:120]}"
    except Exception as error:
        return f"{call}: {type(error).__name__}: {str(error)[:120]}"
    return f"{call} is answered: {str(answer)[:60]}"


@pytest.mark.filterwarnings("ignore")  # torch's own, of nested and sparse tensors
@pytest.mark.parametrize("name", NAMES)
def test_wrong_calls_get_a_sentence(name):
    calls = list(wrong_calls(name))
    assert len(calls) > 3 * len(inspect.signature(found(name)).parameters) / 2
    failures = [said for said in map(failure, calls) if said]
    assert not failures, "\n".join(failures)


MODEL = "distributed.micro_batch_backward"  # where it is the model that speaks


@pytest.mark.parametrize("name", [name for name in RIGHT if name != MODEL])
def test_tensors_without_values_are_answered_without_or_get_a_sentence(name):
    for call in meta_calls(name):
        try:
            answer = call()
        except (TypeError, ValueError) as error:
            speaker = str(error).partition(": ")[0]
        else:
            results = answer if isinstance(answer, tuple) else (answer,)
            assert all(result.is_meta for result in results), call
            continue
        assert speaker in speakers(name), call


def test_numbers_of_numpy_are_numbers():
    one, two = np.int64(1), np.int64(2)
    for loss in (eg.direct_average_precision_loss, eg.direct_jaccard_loss):
        assert loss(LISTS.T, MARKS.T, dim=one) == loss(LISTS.T, MARKS.T, dim=1)
    pooled = eg.loss_max_pooling(MAPS.abs(), dim=(one, two))
    assert pooled == eg.loss_max_pooling(MAPS.abs(), dim=(1, 2))
    model, x = torch.nn.Linear(8, 1), torch.randn(6, 8)
    distributed.micro_batch_backward(model, x, torch.Tensor.sum, size=two)
    assert model.bias.grad == 6


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_labels_and_counts_are_integers(dtype):
    labels, presence = LABELS.to(dtype), torch.tensor([[1, 0], [0, 2]], dtype=dtype)
    counts = metrics.jaccard_counts(labels, labels, num_classes=4)
    assert counts.equal(metrics.jaccard_counts(LABELS, LABELS, num_classes=4))
    assert metrics.jaccard_from_counts(counts.to(dtype)) == metrics.jaccard_from_counts(counts)
    assert sorted(eg.EquibatchSampler(presence)) == [0, 1]


LOSS_MODULES = [
    name for name in NAMES if inspect.isclass(found(name)) and issubclass(found(name), LossModule)
]


@pytest.mark.parametrize("name", LOSS_MODULES)
def test_a_wrong_option_set_later_gets_the_sentence_of_the_constructor(name):
    """A call does not check the options: whatever is an attribute must be right."""
    module, calls = found(name)(**RIGHT.get(name, {})), list(wrong_calls(name))
    calls = [call for call in calls if call.argument in module._options]
    assert {call.argument for call in calls} == {*module._options}
    for call in calls:
        before = getattr(module, call.argument)
        with pytest.raises((TypeError, ValueError)) as constructor:
            call()
        with pytest.raises(type(constructor.value)) as setting:
            setattr(module, call.argument, call.value)
        assert str(setting.value) == str(constructor.value)
        assert getattr(module, call.argument) is before


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        (eg.LovaszHingeLoss, {"gradient": "prox"}, {"bins": 8}),
        (eg.LovaszHingeLoss, {"gradient": "prox"}, {"metric": "dice"}),
        (eg.LovaszHingeLoss, {"metric": eg.Tversky(0.7, 0.3)}, {"gradient": "prox"}),
        (eg.FocalLoss, {"alpha": 0.25, "mode": "binary"}, {"mode": "multiclass"}),
        (eg.FocalLoss, {"mode": "multilabel"}, {"weight": [1.0, 2.0]}),
        (eg.FocalLoss, {"weight": torch.ones(3)}, {"mode": "binary"}),
        (eg.SortingNetworkTopKLoss, {"candidates": 6}, {"k": 6}),
    ],
)
def test_options_that_exclude_each_other_do_so_when_set_later(module, right, wrong):
    with pytest.raises(ValueError, match="must be") as constructor:
        module(**{**right, **wrong})
    loss = module(**right)
    ((option, value),) = wrong.items()
    with pytest.raises(ValueError, match="must be") as setting:
        setattr(loss, option, value)
    assert str(setting.value) == str(constructor.value)


def test_right_options_may_be_set_later():
    scores, target = torch.randn(4, 9), torch.arange(4)
    loss = pickle.loads(pickle.dumps(copy.deepcopy(eg.SmoothTopKLoss(weight=torch.ones(9)))))
    loss.k, loss.temperature, loss.weight = 3, 0.5, [1.0] * 8 + [2.0]
    expected = eg.smooth_topk_loss(scores, target, k=3, temperature=0.5, weight=loss.weight)
    assert loss(scores, target) == expected
    assert loss.double().weight.dtype == torch.float64  # still a buffer
    loss.load_state_dict({"weight": torch.zeros(9)}, assign=True)
    loss.weight = None
    assert loss(scores, target) == eg.smooth_topk_loss(scores, target, k=3, temperature=0.5)
    with pytest.raises(ValueError, match=r"smooth_topk_loss: `temperature` must be finite and"):
        loss.temperature = -1.0


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_an_option_may_be_set_in_a_compiled_function():
    loss, (scores, target) = eg.SmoothTopKLoss(), (torch.randn(4, 9), torch.arange(4))

    @functools.partial(torch.compile, backend="eager")
    def annealed(temperature):
        loss.temperature = temperature
        return loss(scores, target)

    for temperature in (1.0, 0.5):
        expected = eg.smooth_topk_loss(scores, target, temperature=temperature)
        torch.testing.assert_close(annealed(temperature), expected)
        assert loss.temperature == temperature


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: eg.PRAUC(2**63), "anchors"),
        (lambda: eg.ROCAUC(2**31), "anchors"),
        (lambda: CrossBatchMemory(2**31), "capacity"),
        (lambda: eg.median_frequency_weights(torch.ones(1, 4), num_classes=2**40), "num_classes"),
    ],
)
def test_sizes_that_no_memory_holds_are_refused(make, argument):
    with pytest.raises(ValueError, match=rf"`{argument}` must be at most "):
        make()


def test_no_class_is_no_choice_of_classes():
    with pytest.raises(ValueError, match="`classes` must be at least one class; got none"):
        eg.LovaszSoftmaxLoss(classes=[])
    with pytest.raises(ValueError, match="`classes` must be at least one class; got none"):
        metrics.jaccard_index(torch.ones(1, 2), torch.ones(1, 2), num_classes=2, classes=[])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [([99], r"must be in \[0, 3\]; got 99"), (1, "must be a string or a list; got 1")],
)
def test_classes_that_do_not_exist_are_no_choice(wrong, said):
    counts = torch.ones(1, 4, 3)
    calls = {
        "lovasz_softmax_loss": lambda: eg.lovasz_softmax_loss(MAPS, LABELS, classes=wrong),
        "jaccard_index": lambda: metrics.jaccard_index(
            LABELS, LABELS, num_classes=4, classes=wrong
        ),
        "jaccard_from_counts": lambda: metrics.jaccard_from_counts(counts, classes=wrong),
        "tversky_from_counts": lambda: metrics.tversky_from_counts(
            counts, misses=0.7, false_alarms=0.3, classes=wrong
        ),
    }
    for name, call in calls.items():
        with pytest.raises((TypeError, ValueError), match=rf"^{name}: `classes` {said}"):
            call()


def test_a_beta_whose_square_is_no_number_is_refused():
    with pytest.raises(ValueError, match="`beta` must be finite and above 0 and at most 1e"):
        eg.FBeta(1e300)
