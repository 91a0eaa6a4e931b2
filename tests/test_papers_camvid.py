"""The segmentation papers' experiments on a folder in CamVid's layout, which the test draws; the
CRF.
"""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import reproductions
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.dataset import Dataset, Part
from evalgrad_lab.runs import Runs
from evalgrad_lab.store import Store
from reproductions import bases
from reproductions.__main__ import main
from reproductions.crf import Crf
from reproductions.data_sets import APART, CAMVID, CAMVID_ENET, SHARED, rescaled
from reproductions.lovasz import enet_pieces, scenes_claims, scenes_pieces
from reproductions.sizes import SkippedError

NAMES = [one.name for one in reproductions.find(["all"]) if "camvid" in one.name]
COUNTS = {"0001TP": 8, "0006R0": 3, "0016E5": 1}
FRAMES = {
    "train": [f"{drive}_{at}" for drive, count in COUNTS.items() for at in range(count)],
    "val": ["0016E5_7", "0016E5_8"],
}


@pytest.fixture
def camvid(tmp_path, monkeypatch):
    """Images of 48 x 36 pixels, all classes, one row void."""
    folder, random = tmp_path / "camvid", np.random.default_rng(0)
    for part, names in FRAMES.items():
        for kind in ("images", "masks"):
            (folder / part / kind).mkdir(parents=True)
        for name in names:
            labels = random.integers(0, 11, (36, 48), dtype=np.uint8)
            labels[0] = 255
            colours = np.stack([labels * 20] * 3, -1)
            Image.fromarray(colours).save(folder / part / "images" / f"{name}.jpg")
            Image.fromarray(labels).save(folder / part / "masks" / f"{name}.png")
    monkeypatch.setenv(CAMVID, str(folder))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_runs_on_camvid(name, camvid, tmp_path):
    (experiment,) = reproductions.find([name])
    outcome = experiment.run("tiny", Runs(Store(tmp_path / "runs")))
    assert json.loads(json.dumps(outcome.numbers))
    assert "0006R0" in outcome.setting
    assert experiment.judge(outcome.numbers)
    for table in outcome.tables:
        named = [*table.columns, *(row[0] for row in table.rows)]
        assert any("constant" in str(one) for one in named)


def test_the_command_takes_the_folder_and_the_page_says_so(camvid, tmp_path, monkeypatch):
    monkeypatch.delenv(CAMVID)
    (experiment,) = reproductions.find(["lovasz/table-2-camvid"])
    with pytest.raises(SkippedError, match="--camvid"):
        experiment.run("tiny", Runs(Store(tmp_path / "runs")))
    monkeypatch.setenv(CAMVID, "")  # so that what the command sets is taken back
    where = ["--out", str(tmp_path / "out"), "--docs", str(tmp_path / "docs")]
    assert main([experiment.name, "--tiny", "--jobs", "1", "--camvid", str(camvid), *where]) == 0
    page = (tmp_path / "docs" / "lovasz.md").read_text()
    assert "`python -m reproductions lovasz/table-2-camvid --camvid FOLDER --tiny`" in page
    assert "| cyclist |" in page  # the table of the classes


def test_drives_are_trained_on_validated_and_tested_apart(camvid):
    for data, count in ((SHARED, 9), (APART, 8)):
        split = data.read(data.setting("tiny"), 0)
        assert [len(part) for part in (split.train, split.validation, split.test)] == [count, 3, 2]
        assert split.train.inputs.shape[1:] == (3, 18, 24)
        assert set(split.train.target.unique().tolist()) <= {*range(11), 255}


def test_the_constant_prediction_is_the_most_frequent_class_without_the_void(camvid):
    split = SHARED.read(SHARED.setting("tiny"), 0)
    base = bases.Base(SHARED, split, torch.nn.Identity(), 0)
    split.test.target[:] = 255
    split.test.target[:, 3, :5] = 8
    split.test.target[:, 4, :4] = 2
    constant = base.constant(split.test)
    assert constant.unique().tolist() == [8]
    assert base.mious(constant, split.test.target)["dataset"] == pytest.approx(100 * 5 / 9 / 2)


def test_a_rescaled_batch_keeps_its_classes_and_its_images_together():
    target = torch.zeros(2, 20, 30, dtype=torch.int64)
    target[:, 5:15, 10:20] = torch.tensor([[[3]], [[7]]])
    batch = Batch(target[:, None].float(), target, torch.arange(2))
    sizes = set()
    for epoch in range(10):
        (found,) = rescaled(lambda number: [batch], 0)(epoch)
        sizes.add(found.target.shape[-1])
        assert [one.unique().tolist() for one in found.target] == [[0, 3], [0, 7]]
        alike = (found.inputs[:, 0] - found.target).abs() < 0.5
        assert alike.float().mean() > 0.75  # but for the borders, which are smooth in the image
        (again,) = rescaled(lambda number: [batch], 0)(epoch)
        assert torch.equal(again.inputs, found.inputs)
    assert len(sizes) > 4
    assert min(sizes) >= 15
    assert max(sizes) <= 30


def test_every_road_class_has_one_category():
    groups = CAMVID_ENET.categories
    assert sorted(label for group in groups.values() for label in group) == list(range(11))
    table = enet_pieces.category_of_class(CAMVID_ENET)
    assert table[9] == table[10] == list(groups).index("human")
    assert table[255] == 255


def test_the_void_is_no_class_of_an_image():
    target = torch.tensor([[[0, 255], [2, 2]]])
    assert scenes_pieces.class_table(target, 11).nonzero()[:, 1].tolist() == [0, 2]


def mean_field(probabilities, image, crf):
    """In loops over pairs of pixels, for cells of one pixel."""
    classes, height, width = probabilities.shape
    places = [(y, x) for y in range(height) for x in range(width)]
    unary = {at: probabilities[:, at[0], at[1]].log() for at in places}
    found = {at: probabilities[:, at[0], at[1]] for at in places}
    for _ in range(crf.steps):
        new = {}
        for y, x in places:
            said = unary[y, x].clone()
            near, alike = [], []
            for v, u in places:
                apart = (y - v) ** 2 + (x - u) ** 2
                colours = float(((image[:, y, x] - image[:, v, u]) ** 2).sum())
                near.append(np.exp(-apart / 2 / crf.near**2))
                alike.append(np.exp(-apart / 2 / crf.far**2 - colours / 2 / crf.colour**2))
            for weight, kernel in ((crf.smooth, near), (crf.alike, alike)):
                total = sum(kernel)
                for share, at in zip(kernel, places):
                    said += weight * share / total * found[at]
            new[y, x] = said.softmax(0)
        found = new
    return torch.stack([found[at] for at in places], 1).view(classes, height, width)


def test_the_crf_is_mean_field_over_all_pairs_of_pixels():
    torch.manual_seed(0)
    probabilities, images = torch.rand(2, 3, 4, 5).softmax(1), torch.rand(2, 3, 4, 5)
    crf = Crf(0.7, 1.3, near=1.5, far=3.0, colour=0.3, cell=1, steps=3)
    expected = [mean_field(*pair, crf) for pair in zip(probabilities, images)]
    assert torch.allclose(crf(probabilities, images), torch.stack(expected), atol=1e-5)


def test_cells_of_the_crf_are_close_to_pixels_where_all_is_smooth():
    x = torch.linspace(-2, 2, 29)
    image = x.expand(1, 3, 22, 29)
    likely = torch.sigmoid(x).expand(22, 29)
    probabilities = torch.stack([likely, 1 - likely])[None]
    fine, coarse = (
        Crf(near=6.0, far=12.0, colour=0.8, cell=cell)(probabilities, image) for cell in (1, 4)
    )
    assert (fine - coarse).abs().max() < 0.02
    assert (fine - probabilities).abs().max() > 0.1


def test_the_crf_follows_the_edges_of_the_image():
    image = torch.zeros(1, 3, 16, 16)
    image[..., 8:] = 2.0
    probabilities = torch.full((1, 2, 16, 16), 0.5)
    probabilities[:, 0, :, :8], probabilities[:, 1, :, :8] = 0.7, 0.3
    probabilities[:, 0, :, 8:], probabilities[:, 1, :, 8:] = 0.3, 0.7
    probabilities[:, :, 4, 4] = torch.tensor([0.3, 0.7])  # one wrong pixel on each side
    probabilities[:, :, 11, 12] = torch.tensor([0.7, 0.3])
    assert (probabilities.argmax(1) != image[:, 0] / 2).sum() == 2
    found = Crf(0.5, 2.0, cell=2)(probabilities, image).argmax(1)
    assert (found == image[:, 0] / 2).all()


def test_what_is_done_at_the_test_is_judged_by_its_numbers():
    def network(*values):
        keys, noise = ("dataset", "multi-scale", "CRF", "groups"), (0.0, 0.05, -0.05)
        return {key: [value + one for one in noise] for key, value in zip(keys, values)}

    names = ("cross-entropy", "cross-entropy + equibatch", "Lovász", "Lovász + equibatch")
    good = {name: network(70.0, 71.1, 71.9, 66.0) for name in names}
    good |= {name: network(72.0, 73.1, 73.9) for name in names[2:]}
    good |= {"constant": {"dataset": [8.0] * 3}, "base": {"dataset": [70.0] * 3}, "rescaled": True}
    claims = scenes_claims.judge_table(good)
    assert len(claims) == 8
    # scales, CRF; cross-entropy and Lovász above Nowozin's rule: not the paper's comparison
    assert [claim.verdict for claim in claims[-4:]] == ["found"] * 4
    assert [claim.paper for claim in claims[-2:]] == [""] * 2
    bad = good | {name: network(70.0, 69.0, 68.0, 75.0) for name in names[:2]}
    bad |= {name: network(70.0, 69.0, 68.0) for name in names[2:]}
    lost = [c.verdict for c in scenes_claims.judge_table(bad)][-4:]
    assert lost == ["not found"] * 4


def test_nowozins_rule_is_judged_where_there_is_the_papers_lovasz():
    """On batches Lovász + equibatch, longer, is above cross-entropy, and both above the rule."""

    def networks(ours, plain, ruled):
        noise = (0.0, 0.05, -0.05)
        found = {"batches": [plain + one for one in noise], "Nowozin": [ruled + n for n in noise]}
        best = {"batches": [ours + one for one in noise]}
        return {"cross-entropy + equibatch": found, "Lovász + equibatch, longer": best}

    claims = scenes_claims.judge_batches(networks(72.0, 69.0, 66.0), "")
    assert [claim.verdict for claim in claims] == ["found"] * 3
    # 72.5, 68.7 and 65.1 in the paper
    assert [claim.paper for claim in claims] == ["+3.8", "+7.4", "+3.6"]
    lost = scenes_claims.judge_batches(networks(67.0, 69.0, 71.5), "")
    assert [claim.verdict for claim in lost] == ["not found"] * 3


def test_batches_have_every_class_that_occurs():
    torch.manual_seed(0)
    presence = torch.rand(100, 6) < torch.tensor([1.0, 0.5, 0.1, 0.05, 0.02, 0.0])
    batches = scenes_pieces.whole_batches(presence, 0)
    assert [len(one.unique()) for one in batches] == [21] * 20
    for one in batches:
        assert torch.equal(presence[one].any(0), presence.any(0))
    assert torch.equal(torch.stack(batches), torch.stack(scenes_pieces.whole_batches(presence, 0)))
    everything = scenes_pieces.whole_batches(presence[:5], 1)  # fewer images than a batch
    assert all(one.sort().values.tolist() == list(range(5)) for one in everything)


def test_batches_that_cannot_have_every_class_are_an_error(monkeypatch):
    monkeypatch.setattr(scenes_pieces, "DRAWS", 50)
    alone = torch.eye(22, dtype=torch.bool)  # a class in each image, one more than a batch has
    with pytest.raises(ValueError, match=r"`presence` must .* got 22 classes in 22 images"):
        scenes_pieces.whole_batches(alone, 0)
    assert len(scenes_pieces.whole_batches(alone[:21], 0)) == 20


def two_images(*rows):
    """A base whose parts are two images of one row, with these labels."""
    images, target = torch.zeros(2, 3, 1, len(rows[0])), torch.tensor(rows)[:, None]
    part = Part(images, target)
    return bases.Base(SHARED, Dataset(part, part, part), torch.nn.Identity(), 0)


def test_the_mean_of_the_batches_is_that_of_their_miou(monkeypatch):
    base = two_images([0, 0, 0, 1, 255], [0, 0, 2, 2, 255])
    found = torch.tensor([[[0, 0, 0, 1, 0]], [[0, 0, 0, 0, 1]]])  # the first image is right
    batches = [torch.tensor([0, 1]), torch.tensor([1])]
    monkeypatch.setattr(scenes_pieces, "whole_batches", lambda *table: batches)
    # intersections over unions of the classes 0, 1 and 2 over both images, of 0 and 2 in one
    both, one = (5 / 7 + 1 / 1 + 0 / 2) / 3, (2 / 4 + 0 / 2) / 2
    miou = scenes_pieces.on_batches(base, lambda at: found[at])
    assert miou == pytest.approx(100 * (both + one) / 2)


def test_nowozins_rule_is_not_that_of_the_most_likely_class(monkeypatch):
    """The example of `dataset_jaccard_labels`, in both images: argmax never says 1."""
    base = two_images([0, 0, 1], [0, 0, 1])
    chances = torch.tensor([[0.9, 0.6, 0.55], [0.1, 0.4, 0.45]]).view(1, 2, 1, 3)
    monkeypatch.setattr(scenes_pieces, "scores_of", lambda *rest: chances.log().repeat(2, 1, 1, 1))
    seen = scenes_pieces.at_test(base, base.network, ["Nowozin"], 1.0)
    assert seen["Nowozin"] == pytest.approx(100)
    whole = scenes_pieces.at_test(base, base.network, ["groups"], 1.0)
    assert whole["groups"] == pytest.approx(100)
    assert seen["batches"] == seen["dataset"] == pytest.approx(100 * (2 / 3 + 0) / 2)
