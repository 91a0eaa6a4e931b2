"""Items that do not count, several tasks, several groups: each layout is what it says, by the plain
measure on the items that it is about.
"""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from evalgrad import ROCAUC, FBeta, PrecisionAtRecall, RecallAtPrecision, SizeLabels

N = 60
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(N, generator=DRAW)
Y, KEEP, INDEX = torch.arange(N) % 4 == 0, torch.arange(N) % 5 != 1, torch.arange(N)
GROUPS = torch.arange(N) % 3
MEASURES = [
    lambda **o: FBeta(**o),
    lambda **o: RecallAtPrecision(0.7, **o),
    lambda **o: ROCAUC(3, **o),
]
every = pytest.mark.parametrize("make", MEASURES)
solvers = pytest.mark.parametrize("solver", ["ratio", "lagrangian"])


def step(reg, scores, target, **keywords):
    x = scores.clone().requires_grad_()
    value = reg(x, target, **keywords)
    return value.detach(), torch.autograd.grad(value, x)[0]


@every
@solvers
@pytest.mark.parametrize("way", ["mask", "ignore_index", "both"])
def test_what_does_not_count_is_as_if_absent(make, solver, way):
    labels, options, keywords = torch.where(KEEP, Y.long(), 255), {}, {}
    if way == "mask":
        labels = Y.long()
    else:
        options["ignore_index"] = 255
    if way != "ignore_index":
        keywords["mask"] = KEEP
    reg, alone = make(labels=labels, solver=solver, **options), make(labels=Y[KEEP], solver=solver)
    if way == "mask":  # the labels then hold them all: their frequencies, too
        alone = make(labels=Y, solver=solver)
    scores = X.masked_fill(~KEEP, torch.nan)
    place = INDEX[KEEP] if way == "mask" else INDEX[: int(KEEP.sum())]
    for _ in range(3):
        value, gradient = step(reg, scores, labels, index=INDEX, **keywords)
        wanted, expected = step(alone, X[KEEP], Y[KEEP], index=place)
        torch.testing.assert_close(value, wanted)
        torch.testing.assert_close(gradient[KEEP], expected)
        assert gradient[~KEEP].eq(0).all()
        reg.dual_step()
        alone.dual_step()
    torch.testing.assert_close(reg.groups[0].mu, alone.groups[0].mu)
    if way != "mask":
        assert reg.diagnostics()["source"].endswith("100 % of the items seen")


@every
@solvers
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_mask_in_a_graph(make, solver):
    eager, inside = make(labels=Y, solver=solver), make(labels=Y, solver=solver)
    torch._dynamo.reset()
    compiled = torch.compile(inside, fullgraph=True, dynamic=True, backend="aot_eager")
    scores = X.masked_fill(~KEEP, torch.nan)
    keywords = {"index": INDEX, "mask": KEEP}
    torch.testing.assert_close(
        step(compiled, scores, Y, **keywords), step(eager, scores, Y, **keywords)
    )
    torch.testing.assert_close(inside.groups[0].mu, eager.groups[0].mu)


@solvers
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_padding_in_a_graph_may_have_any_position(solver):
    """Also one that is an item of the batch, whose score is the one that is kept."""
    reg = FBeta(labels=Y, solver=solver)
    torch._dynamo.reset()
    compiled = torch.compile(reg, fullgraph=True, dynamic=True, backend="aot_eager")
    index = torch.tensor([0, 1, 2, 3, 0, -100, N, 2])
    target, mask = Y[index.clamp(0, N - 1)], torch.arange(8) < 4
    step(compiled, X[:8], target, index=index, mask=mask)
    cache = reg.groups[0].counts.cache
    torch.testing.assert_close(cache[:4], X[:4])
    assert cache[4:].isnan().all()
    step(compiled, X[8:16], target, index=index, mask=torch.zeros(8, dtype=torch.bool))
    torch.testing.assert_close(cache[:4], X[:4])
    assert cache[4:].isnan().all()
    step(compiled, X[8:16], target.roll(1), index=index.roll(1), mask=mask.roll(1))  # on both sides
    torch.testing.assert_close(cache[:4], X[9:13])
    assert cache[4:].isnan().all()


@pytest.mark.parametrize(
    ("wrong", "kind", "match"),
    [
        (torch.where(INDEX == 5, -1, GROUPS), ValueError, r"got the label -1\..* ignore_index=-1"),
        (GROUPS + 0.5, TypeError, "`target` must be an integer"),
    ],
)
def test_a_mask_excuses_the_labels_that_it_leaves_out_alone(wrong, kind, match):
    reg, scores = FBeta(labels=GROUPS), torch.randn(N, 3)
    for keywords in ({}, {"mask": INDEX != 1}):
        with pytest.raises(kind, match=match):
            reg(scores, wrong, **keywords)
    left_out = torch.where(INDEX == 1, -1, GROUPS)
    both = (reg(scores, labels, mask=INDEX != 1) for labels in (GROUPS, left_out))
    torch.testing.assert_close(*both)


def test_pixels_of_maps_without_positions():
    maps, target = X.view(3, 4, 5), torch.where(KEEP, Y.long(), 255).view(3, 4, 5)
    value, gradient = step(FBeta(ignore_index=255), maps, target)
    wanted, expected = step(FBeta(), X[KEEP], Y[KEEP])
    torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(gradient.flatten()[KEEP], expected)
    nothing = torch.full((3, 4, 5), 255)
    value, gradient = step(FBeta(ignore_index=255), maps, nothing)
    assert value == 0
    assert gradient.eq(0).all()


@every
@solvers
def test_tasks_are_averaged_or_pooled(make, solver):
    scores, target = X.view(20, 3), Y.view(20, 3)
    index = torch.arange(20)
    macro = make(labels=target, average="macro", solver=solver)
    parts = [make(labels=target[:, c], solver=solver) for c in range(3)]
    columns = [part(scores[:, c], target[:, c], index=index) for c, part in enumerate(parts)]
    torch.testing.assert_close(macro(scores, target, index=index), torch.stack(columns).mean())
    assert len(macro.diagnostics()["groups"]) == 3
    micro, pooled = (
        make(labels=target, average="micro", solver=solver),
        make(labels=Y, solver=solver),
    )
    torch.testing.assert_close(micro(scores, target, index=index), pooled(X, Y, index=INDEX))
    torch.testing.assert_close(
        micro.diagnostics()["metric"], pooled.diagnostics()["metric"], rtol=0, atol=1e-12
    )


def test_tasks_with_masks():
    scores, target, mask = X.view(20, 3), Y.view(20, 3), KEEP.view(20, 3)
    macro = FBeta(labels=target, average="macro")
    parts = [
        FBeta(labels=target[:, c])(scores[:, c], target[:, c], mask=mask[:, c]) for c in range(3)
    ]
    torch.testing.assert_close(macro(scores, target, mask=mask), torch.stack(parts).mean())
    rows = torch.arange(20) % 2 == 0  # of the items, for all their tasks
    both = FBeta(labels=target, average="macro")(scores[rows], target[rows])
    masked = FBeta(labels=target, average="macro")(scores, target, mask=rows)
    torch.testing.assert_close(masked, both)


@solvers
def test_groups_are_pooled_or_taken_in_pairs(solver):
    scores = torch.randn(N, 3, generator=torch.Generator().manual_seed(1))
    member = F.one_hot(GROUPS, 3).bool()
    micro = FBeta(labels=GROUPS, average="micro", solver=solver)
    pooled = FBeta(labels=member.flatten(), solver=solver)
    torch.testing.assert_close(
        micro(scores, GROUPS, index=INDEX),
        pooled(scores.flatten(), member.flatten(), index=torch.arange(3 * N)),
    )
    pairwise = FBeta(labels=GROUPS, average="pairwise", solver=solver)
    values = []
    for one in range(3):
        for other in range(3):
            of_two = (one == GROUPS) | (other == GROUPS)
            if one != other:
                part = FBeta(labels=(one == GROUPS)[of_two], solver=solver)
                place = torch.arange(int(of_two.sum()))
                values.append(part(scores[of_two, one], (one == GROUPS)[of_two], index=place))
    torch.testing.assert_close(pairwise(scores, GROUPS, index=INDEX), torch.stack(values).mean())
    assert len(pairwise.diagnostics()["groups"]) == 6


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: FBeta(labels=Y.view(20, 3)), r"`labels` must be one column, or `average` given"),
        (
            lambda: FBeta()(X.view(20, 3), Y.view(20, 3)),
            "`target` must be one column, or `average`",
        ),
        (lambda: FBeta(average="macro"), "`labels` must be given with average='macro'"),
        (lambda: FBeta(labels=Y, average="macro"), "`average` must be left out"),
        (lambda: FBeta(labels=Y.view(20, 3), average="pairwise"), "'macro' or 'micro'"),
        (lambda: FBeta(average="mean"), "`average` must be one of"),
        (
            lambda: FBeta(labels=Y.view(20, 3), average="macro")(X.view(30, 2), Y.view(30, 2)),
            r"`scores` must be of shape \(\*, 3\)",
        ),
        (lambda: FBeta()(X, Y, mask=KEEP[1:]), "`mask` must be of shape"),
    ],
)
def test_messages(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_recall_one_may_be_asked_for():
    assert PrecisionAtRecall(1.0, labels=Y)(X, Y).isfinite()


@every
@solvers
def test_multipliers_outlive_their_data(make, solver):
    old = make(labels=Y[:40], solver=solver)
    old(X[:40], Y[:40], index=INDEX[:40])
    old.groups[0].mu.mul_(0.5)  # as if trained
    grown = make(labels=Y, solver=solver)
    with pytest.raises(ValueError, match=r"`load_multipliers\(state_dict\)`"):
        grown.load_state_dict(old.state_dict())
    grown.load_multipliers(old.state_dict())
    assert torch.equal(grown.groups[0].mu, old.groups[0].mu)
    assert not torch.equal(grown.groups[0].mu, make(labels=Y, solver=solver).groups[0].mu)
    assert grown.groups[0].counts.cache.isnan().all()
    assert grown.diagnostics()["source"] == "nothing seen yet"
    assert math.isnan(grown.diagnostics()["certificate"])
    assert grown(X, Y, index=INDEX).isfinite()
    other = FBeta(2.0, labels=Y) if make is not MEASURES[0] else ROCAUC(4, labels=Y)
    with pytest.raises(
        ValueError, match="load_multipliers: `state_dict` must be of a measure with"
    ):
        other.load_multipliers({})


def test_multipliers_are_weighed_by_the_new_frequencies():
    (old, _), (new, other) = (
        [FBeta(labels=labels, solver=solver).groups[0] for solver in ("ratio", "lagrangian")]
        for labels in (Y, INDEX % 2 == 0)
    )
    new.load_multipliers(old.state_dict())
    assert new.weight[0].tolist() == [-float(old.mu), 1.0]  # as many negatives as positives
    state = other.state_dict()
    state["lam"] = torch.arange(5.0).unsqueeze(0)
    other.load_multipliers(state)
    assert other.lam.eq(2).all()


@pytest.mark.parametrize("solver", ["ratio", "lagrangian"])
@pytest.mark.parametrize(("theirs", "own"), [(3, 4), (4, 3), (3, 2), (2, 3)])
def test_multipliers_of_other_groups_are_refused_and_nothing_changes(solver, theirs, own):
    old, new = (FBeta(labels=INDEX % groups, solver=solver) for groups in (theirs, own))
    for group in old.groups:
        group.mu.mul_(0.5)
    before = copy.deepcopy(new.state_dict())
    found = 1 if theirs == 2 else theirs
    with pytest.raises(ValueError, match=f"got other multipliers, of {found} groups"):
        new.load_multipliers(old.state_dict())
    for key, value in new.state_dict().items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, before[key], rtol=0, atol=0, equal_nan=True)


def test_multipliers_that_fit_in_part_change_nothing():
    old, new = ROCAUC(4, labels=INDEX % 3), ROCAUC(4, labels=INDEX % 3)
    state = old.state_dict()
    state["groups.0.mu"] += 1
    state["groups.2.mu"] = state["groups.2.mu"][:2]
    with pytest.raises(ValueError, match="`state_dict` must be of a measure with the same"):
        new.load_multipliers(state)
    assert new.groups[0].mu.eq(1).all()
    with pytest.raises(ValueError, match="`state_dict` must be"):
        FBeta(labels=Y).load_multipliers(FBeta(labels=Y, solver="lagrangian").state_dict())


@solvers
@pytest.mark.parametrize("other", [{"at_least": 0.5}, PrecisionAtRecall])
def test_multipliers_of_another_sign_are_refused(solver, other):
    """As multiplier of a constraint, the V of F-beta would train the inverse."""
    ratio = FBeta(labels=Y, solver=solver)
    if other is PrecisionAtRecall:
        constraint = PrecisionAtRecall(0.5, labels=Y, solver=solver)
    else:
        constraint = FBeta(labels=Y, solver=solver, **other)
    for new, old in ((constraint, ratio), (ratio, constraint)):
        before = new.groups[0].mu.clone()
        with pytest.raises(ValueError, match="must be of a measure with the same options"):
            new.load_multipliers(old.state_dict())
        assert torch.equal(new.groups[0].mu, before)


@pytest.mark.parametrize("average", ["macro", "micro", "pairwise"])
def test_groups_that_are_masked_and_ignored_are_as_if_absent(average):
    ignored = torch.where(INDEX % 7 == 2, 255, GROUPS)
    scores, kept = torch.randn(N, 3, generator=DRAW), KEEP & (ignored < 255)
    reg, alone = (FBeta(labels=GROUPS, average=average, ignore_index=255) for _ in range(2))
    given = step(reg, scores, ignored, mask=KEEP)
    value, gradient = step(alone, scores[kept], GROUPS[kept])
    torch.testing.assert_close(given, (value, torch.zeros(N, 3).index_put((kept,), gradient)))


def test_multipliers_of_a_whole_model_say_how_to_take_them():
    old, new = (RecallAtPrecision(0.7, labels=INDEX % 3) for _ in range(2))
    old.groups[1].mu.mul_(0.5)
    state_dict = torch.nn.ModuleDict({"net": torch.nn.Linear(2, 1), "reg": old}).state_dict()
    with pytest.raises(
        ValueError, match=r"Pass those of the measure alone: `{key\.remove"
    ) as raised:
        new.load_multipliers(state_dict)
    cure = str(raised.value).split("`")[-2]
    new.load_multipliers(eval(cure, {"state_dict": state_dict}))
    assert new.groups[1].mu == 0.5


def test_size_labels_from_a_stream():
    masks = torch.rand(12, 5, 5, generator=DRAW) < torch.rand(12, 1, 1, generator=DRAW)
    whole, stream = SizeLabels().fit(masks), SizeLabels()
    for part in masks.split(5):
        stream.partial_fit(part)
    torch.testing.assert_close(stream.threshold, whole.threshold)
    assert torch.equal(stream(masks), whole(masks))
    other = SizeLabels()
    other.load_state_dict(stream.state_dict())
    other.partial_fit(masks[:1])
    areas = masks.flatten(1).sum(1).double()
    torch.testing.assert_close(other.threshold, (areas.sum() + areas[0]) / 13)
    assert torch.equal(stream.fit(masks[:3]).threshold, areas[:3].mean())  # fit forgets
