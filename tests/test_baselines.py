"""What the baselines promise beyond the laws."""

import pytest
import torch
import torch.nn.functional as F

import evalgrad as eg


def test_keeping_everything_is_cross_entropy():
    logits, target = torch.randn(2, 5, 6, 7), torch.randint(5, (2, 6, 7))
    target[0, 0] = 255
    weight = torch.rand(5) + 0.1
    actual = eg.bootstrapped_cross_entropy(
        logits, target, k=1.0, per_image=False, ignore_index=255, weight=weight
    )
    assert torch.allclose(actual, F.cross_entropy(logits, target, weight, ignore_index=255))


def test_the_k_hardest_is_pooling_at_p_1():
    """So the two systems can be compared: m = k."""
    logits, target = torch.randn(3, 5, 40), torch.randint(5, (3, 40))
    losses = F.cross_entropy(logits, target, reduction="none")
    pooled = eg.loss_max_pooling(losses, p=1, support=0.25)
    assert torch.allclose(eg.bootstrapped_cross_entropy(logits, target, k=0.25), pooled)
    assert torch.allclose(eg.bootstrapped_cross_entropy(logits, target, k=10), pooled)


def test_ignored_pixels_are_never_among_the_k():
    logits, target = torch.zeros(1, 2, 6), torch.tensor([[0, 255, 255, 0, 255, 255]])
    # 2 valid pixels of loss log 2
    value = eg.bootstrapped_cross_entropy(logits, target, k=4, ignore_index=255)
    assert value.item() == pytest.approx(torch.tensor(2.0).log().item())


def test_threshold_keeps_at_least_k():
    confident = torch.tensor([[[9.0, 8.0, 7.0, 6.0], [0.0, 0.0, 0.0, 0.0]]])
    target = torch.zeros(1, 4, dtype=torch.long)
    losses = F.cross_entropy(confident, target, reduction="none")[0]
    for threshold, k, kept in ((0.7, 2, losses[2:]), (0.9998, 1, losses[1:]), (0.99999, 1, losses)):
        value = eg.bootstrapped_cross_entropy(confident, target, threshold=threshold, k=k)
        assert torch.allclose(value, kept.mean())


def test_soft_jaccard_of_an_absent_class():
    """Neither predicted nor true: 0, as the metric counts it 1; predicted: 1."""
    logits = torch.tensor([[[0.0, 0.0], [-torch.inf, -torch.inf]]])
    target = torch.zeros(1, 2, dtype=torch.long)
    losses = eg.soft_jaccard_loss(logits, target, classes="all", reduction="none")
    assert losses.tolist() == [[0.0, 0.0]]
    losses = eg.soft_jaccard_loss(torch.zeros(1, 2, 2), target, classes="all", reduction="none")
    assert losses.tolist() == [[0.5, 1.0]]


def test_frequency_weights_from_their_definition():
    batches = [torch.randint(4, (3, 5, 6)), torch.randint(3, (2, 7)), torch.full((1, 9), 255)]
    images = [image[image != 255] for batch in batches for image in batch]
    frequencies = []
    for c in range(4):
        having = [image for image in images if (image == c).any()]
        frequencies.append(
            sum((image == c).sum().item() for image in having)
            / sum(image.numel() for image in having)
        )
    ordered = sorted(frequencies)
    median = (ordered[1] + ordered[2]) / 2
    actual = eg.median_frequency_weights(iter(batches), num_classes=5, ignore_index=255)
    assert actual.tolist() == pytest.approx([median / f for f in frequencies] + [0.0])
    weights = eg.inverse_frequency_weights(iter(batches), num_classes=5, ignore_index=255)
    pixels = torch.cat(images)
    assert weights[pixels].mean().item() == pytest.approx(1.0)
    shares = weights * torch.bincount(pixels, minlength=5)
    assert shares[:4].tolist() == pytest.approx([shares[0].item()] * 4)
    assert weights[4] == 0


def test_frequency_weights_take_bytes_and_bools():
    labels = torch.tensor([[0, 1, 1, 255]], dtype=torch.uint8)
    assert eg.inverse_frequency_weights(
        labels, num_classes=2, ignore_index=255
    ).tolist() == pytest.approx([1.5, 0.75])
    assert eg.median_frequency_weights(labels[:, :3] == 1, num_classes=2).tolist() == pytest.approx(
        [1.5, 0.75]
    )
