"""One test per message of the direct losses and the ranking metrics: what was wrong, what came, the
repair.
"""

import pytest
import torch

import evalgrad as eg
from evalgrad import metrics

# neither list in an extreme order
SCORES = torch.tensor([[0.3, 1.2, -0.4, -1.1, 0.6], [0.8, -0.2, 1.0, 1.5, -0.9]])
TARGET = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 1, 0, 1]])
DIRECT = (
    eg.direct_average_precision_loss,
    eg.direct_ndcg_loss,
    eg.direct_jaccard_loss,
    eg.direct_zero_one_loss,
)
BASELINES = (
    eg.average_precision_hinge_loss,
    eg.average_precision_perceptron_loss,
    eg.zero_one_hinge_loss,
    eg.zero_one_perceptron_loss,
)
MODULES = (
    eg.DirectAveragePrecisionLoss,
    eg.DirectNDCGLoss,
    eg.DirectGradedNDCGLoss,
    eg.DirectJaccardLoss,
    eg.DirectZeroOneLoss,
)
BASELINE_MODULES = (
    eg.AveragePrecisionHingeLoss,
    eg.AveragePrecisionPerceptronLoss,
    eg.ZeroOneHingeLoss,
    eg.ZeroOnePerceptronLoss,
)

BINARY = [*DIRECT, *BASELINES, metrics.average_precision, eg.suggest_epsilon]
GRADED = [metrics.ndcg, eg.direct_graded_ndcg_loss]
of_binary_labels = pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
of_grades = pytest.mark.parametrize("function", GRADED, ids=lambda f: f.__name__)
over_lists = pytest.mark.parametrize("function", [*BINARY, *GRADED], ids=lambda f: f.__name__)
direct = pytest.mark.parametrize(
    "function", [*DIRECT, eg.direct_graded_ndcg_loss], ids=lambda f: f.__name__
)


@over_lists
def test_scores_must_be_floating(function):
    with pytest.raises(
        TypeError,
        match=rf"{function.__name__}: `scores` must be a floating-point tensor; got an int64",
    ):
        function(TARGET, TARGET)


@over_lists
def test_scores_must_have_an_axis(function):
    with pytest.raises(
        ValueError,
        match=rf"{function.__name__}: `scores` must be a tensor with at least 1 dimension",
    ):
        function(torch.tensor(1.0), torch.tensor(1))


@of_binary_labels
def test_soft_targets_are_refused(function):
    match = rf"{function.__name__}: `target` must be 0 or 1, or bool; got the label 0.5\. .*> 0\.5`"
    with pytest.raises(ValueError, match=match):
        function(SCORES, TARGET / 2)
    assert function(SCORES, TARGET.float()) == function(SCORES, TARGET)


@over_lists
def test_shape_of_target(function):
    with pytest.raises(
        ValueError,
        match=(
            rf"{function.__name__}: `target` must be of shape \(2, 5\); got an int64 tensor of"
            r" shape \(5,\)"
        ),
    ):
        function(SCORES, TARGET[0])


@of_binary_labels
def test_graded_targets_are_refused(function):
    name = function.__name__
    grades = TARGET * torch.arange(1, TARGET.shape[1] + 1)
    match = rf"{name}: `target` must be 0 or 1, or bool; got .* Graded labels are for `direct_"
    with pytest.raises(ValueError, match=match):
        function(SCORES, grades)
    for other in (3 * TARGET, 2 * TARGET - 1):
        with pytest.raises(ValueError, match="pass `target > 0`"):
            function(SCORES, other)
        assert function(SCORES, other > 0) == function(SCORES, TARGET)


@of_grades
@pytest.mark.parametrize("grade", [-1.0, -0.5, float("nan"), float("inf")])
def test_grades(function, grade):
    grades = TARGET.float()
    grades[1, 2] = grade
    match = rf"{function.__name__}: `target` must be finite and at least 0; got the grade {grade:g}"
    for gain in ("linear", "exponential"):
        with pytest.raises(ValueError, match=match):
            function(SCORES, grades, gain=gain)
    assert function(SCORES, grades, mask=(grades == 0) | (grades == 1)).isfinite()


@of_grades
def test_grades_without_an_exponential_gain(function):
    with pytest.raises(ValueError, match=r'got the grade 2000\. .*pass gain="linear"'):
        function(SCORES, 2000 * TARGET, gain="exponential")
    found = function(SCORES, 2000 * TARGET, gain="linear")
    torch.testing.assert_close(found, function(SCORES, TARGET))
    with pytest.raises(TypeError, match="`target` must be real numbers; got a complex64 tensor"):
        function(SCORES, TARGET.to(torch.complex64))


@of_grades
def test_item_weights(function):
    name = function.__name__
    with pytest.raises(ValueError, match=rf"{name}: `item_weight` must be of shape \(2, 5\)"):
        function(SCORES, TARGET, item_weight=torch.ones(5))
    with pytest.raises(ValueError, match=rf"{name}: `item_weight` must be .*; got the weight -2"):
        function(SCORES, TARGET, item_weight=-2 * torch.ones(2, 5))
    with pytest.raises(TypeError, match=rf"{name}: `item_weight` must be a tensor"):
        function(SCORES, TARGET, item_weight=2.0)


@of_grades
def test_gain(function):
    match = rf"{function.__name__}: `gain` must be one of 'linear', 'exponential'; got 'log'"
    with pytest.raises(ValueError, match=match):
        function(SCORES, TARGET, gain="log")


@over_lists
def test_labels_that_the_mask_leaves_out_may_be_anything(function):
    target, mask = TARGET.clone(), torch.ones_like(TARGET, dtype=torch.bool)
    target[:, 1], mask[:, 1] = 7, False
    function(SCORES, target, mask=mask)


@over_lists
def test_kind_of_mask(function):
    ones = torch.ones_like(TARGET)
    assert function(SCORES, TARGET, mask=ones) == function(SCORES, TARGET, mask=ones.bool())
    with pytest.raises(
        ValueError, match=rf"{function.__name__}: `mask` must be 0 or 1, or bool; got the label 2"
    ):
        function(SCORES, TARGET, mask=2 * ones)


@over_lists
def test_shape_of_mask(function):
    with pytest.raises(ValueError, match=rf"{function.__name__}: `mask` must be of shape \(2, 5\)"):
        function(SCORES, TARGET, mask=torch.ones(5, dtype=torch.bool))


@direct
@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_epsilon_must_be_positive(function, epsilon):
    with pytest.raises(
        ValueError,
        match=(
            rf"{function.__name__}: `epsilon` must be finite and above 0; got .*`suggest_epsilon`"
        ),
    ):
        function(SCORES, TARGET, epsilon=epsilon)


@direct
def test_epsilon_must_be_a_number(function):
    with pytest.raises(
        TypeError, match=rf"{function.__name__}: `epsilon` must be a number; got '0.1'"
    ):
        function(SCORES, TARGET, epsilon="0.1")


@direct
def test_direction(function):
    with pytest.raises(
        ValueError,
        match=rf"{function.__name__}: `direction` must be one of 'positive', 'negative'; got 'up'",
    ):
        function(SCORES, TARGET, direction="up")


@pytest.mark.parametrize("function", [*DIRECT, *BASELINES], ids=lambda f: f.__name__)
def test_reduction(function):
    with pytest.raises(
        ValueError,
        match=rf"{function.__name__}: `reduction` must be one of 'mean', 'sum', 'none'; got 'max'",
    ):
        function(SCORES, TARGET, reduction="max")


@pytest.mark.parametrize("function", [metrics.average_precision, metrics.ndcg])
def test_reduction_of_metrics(function):
    with pytest.raises(
        ValueError,
        match=rf"{function.__name__}: `reduction` must be one of 'mean', 'none'; got 'sum'",
    ):
        function(SCORES, TARGET, reduction="sum")


AT_K = [
    eg.direct_ndcg_loss,
    eg.direct_graded_ndcg_loss,
    eg.suggest_epsilon,
    metrics.ndcg,
    metrics.average_precision,
    metrics.precision_at_k,
    metrics.recall_at_k,
    metrics.reciprocal_rank,
]


@pytest.mark.parametrize("function", AT_K, ids=lambda f: f.__name__)
def test_k(function):
    with pytest.raises(ValueError, match=rf"{function.__name__}: `k` must be at least 1; got 0"):
        function(SCORES, TARGET, k=0)
    with pytest.raises(TypeError, match=rf"{function.__name__}: `k` must be an integer; got 2.5"):
        function(SCORES, TARGET, k=2.5)


@pytest.mark.parametrize("module", MODULES)
def test_modules_check_when_they_are_built(module):
    for option, value in (("epsilon", 0.0), ("direction", "up"), ("reduction", "max")):
        with pytest.raises(ValueError, match=f"`{option}` must be"):
            module(**{option: value})


@pytest.mark.parametrize("module", BASELINE_MODULES)
def test_baseline_modules_check_when_they_are_built(module):
    with pytest.raises(ValueError, match="`reduction` must be one of"):
        module(reduction="max")


@pytest.mark.parametrize("argument", ["score", "task_loss", "predict", "augment"])
def test_the_general_loss_takes_functions(argument):
    functions = dict.fromkeys(
        ["score", "task_loss", "predict", "augment"], lambda *_: torch.zeros(2)
    )
    with pytest.raises(
        TypeError,
        match=(
            rf"direct_loss: `{argument}` must be a function; got a float32 tensor of shape \(2, 5\)"
        ),
    ):
        eg.direct_loss(**{**functions, argument: SCORES}, epsilon=0.1)


def test_the_general_loss_wants_scores_with_a_graph():
    for score in (0.5, torch.zeros(2, dtype=torch.long)):
        with pytest.raises(
            TypeError, match="direct_loss: `score` must be a function that returns a floating-point"
        ):
            eg.direct_loss(lambda y, s=score: s, lambda y: 0, lambda: 0, lambda w: 0, epsilon=0.1)


def test_the_general_loss_wants_one_task_loss_per_score():
    zeros = torch.zeros(2)
    with pytest.raises(
        ValueError,
        match=(
            r"direct_loss: `task_loss` must be of shape \(2,\); got a float32 tensor of shape \(\)"
        ),
    ):
        eg.direct_loss(
            lambda y: zeros, lambda y: zeros.mean(), lambda: 0, lambda weight: 0, epsilon=0.1
        )
    with pytest.raises(
        ValueError, match=r"direct_loss: `task_loss` must be of shape \(2,\); got 0\.5"
    ):
        eg.direct_loss(lambda y: zeros, lambda y: 0.5, lambda: 0, lambda weight: 0, epsilon=0.1)


def test_the_general_loss_checks_its_options():
    functions = [lambda *_: torch.zeros(2)] * 4
    with pytest.raises(ValueError, match="direct_loss: `epsilon` must be finite and above 0"):
        eg.direct_loss(*functions, epsilon=-1.0)
    with pytest.raises(ValueError, match="direct_loss: `direction` must be one of"):
        eg.direct_loss(*functions, epsilon=1.0, direction="down")


def test_suggest_epsilon_wants_something_to_move():
    with pytest.raises(
        ValueError,
        match=(
            "suggest_epsilon: `scores` must be lists whose task loss can change; got scores"
            " spread over 0"
        ),
    ):
        eg.suggest_epsilon(torch.zeros(2, 5), TARGET)
    with pytest.raises(ValueError, match=r"can change by 0\. .* in the other direction"):
        eg.suggest_epsilon(-1.0 * TARGET, TARGET)
    assert eg.suggest_epsilon(-1.0 * TARGET, TARGET, direction="negative") > 0
    with pytest.raises(ValueError, match="a task loss that can change by nan"):
        eg.suggest_epsilon(torch.where(TARGET == 1, torch.nan, SCORES), TARGET)


@pytest.mark.parametrize("direction", ["positive", "negative"])
@pytest.mark.parametrize("scores", [torch.zeros(2, 5), SCORES * torch.nan])
def test_the_other_direction_is_not_advised_where_it_fails_too(scores, direction):
    with pytest.raises(ValueError, match=r"nor in the extreme order already\.$"):
        eg.suggest_epsilon(scores, TARGET, direction=direction)
    with pytest.raises(ValueError, match=r"by 0\. .* nor in the extreme order already\.$"):
        eg.suggest_epsilon(SCORES.view(-1, 1), TARGET.view(-1, 1), dim=1, direction=direction)


def test_suggest_epsilon_checks_its_options():
    with pytest.raises(
        ValueError,
        match=r"suggest_epsilon: `metric` must be one of 'average_precision', .*; got 'auc'",
    ):
        eg.suggest_epsilon(SCORES, TARGET, metric="auc")
    with pytest.raises(
        ValueError, match=r"suggest_epsilon: `k` must be None for 'jaccard'; got 3\. Leave it out"
    ):
        eg.suggest_epsilon(SCORES, TARGET, metric="jaccard", k=3)
    with pytest.raises(
        ValueError, match="suggest_epsilon: `share` must be finite and above 0 and below 1; got 1"
    ):
        eg.suggest_epsilon(SCORES, TARGET, share=1)
    with pytest.raises(
        ValueError, match="suggest_epsilon: `share` must be finite and above 0 and below 1; got 0"
    ):
        eg.suggest_epsilon(SCORES, TARGET, share=0)
