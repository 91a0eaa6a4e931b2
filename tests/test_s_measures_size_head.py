import torch

from evalgrad import FBeta, SizeHead, SizeLabels, majority_size_labels


def test_head_trains_on_any_feature_map():
    labels = torch.arange(6) % 2
    for features, groups in (
        (torch.randn(6, 5), 2),
        (torch.randn(6, 5, 3, 3), 2),
        (torch.randn(6, 5, 2, 2, 2), 3),
    ):
        head = SizeHead(5, groups)
        target = labels if groups == 2 else torch.arange(6) % 3
        FBeta(labels=target)(head(features), target).backward()
        assert head.node.weight.grad is not None
        assert head(features).shape == ((6,) if groups == 2 else (6, 3))


def test_the_head_shows_its_arguments():
    head = SizeHead(5, groups=3)
    assert (head.in_features, head.groups) == (5, 3)
    assert repr(head).startswith("SizeHead(\n  in_features=5, groups=3\n  (node)")


def test_labels_by_the_training_mean():
    masks = torch.zeros(3, 4, 4)
    masks[1, :2], masks[2] = 7, 1  # 0, 8 and 16 pixels, mean 8
    rule = SizeLabels().fit(masks)
    assert rule(masks).tolist() == [0, 0, 1]
    assert rule(masks[2:]).tolist() == [1]
    other = SizeLabels()
    other.load_state_dict(rule.state_dict())
    assert other(masks).tolist() == [0, 0, 1]


def test_labels_by_majority_of_the_classes_present():
    target = torch.tensor(
        [[0] * 10, [0] * 5 + [1] * 5, [0] * 8 + [1, 2], [255] * 10, [0] * 9 + [1]]
    )
    labels = majority_size_labels(target, classes=3, threshold=0.2, ignore_index=255)
    assert labels.tolist() == [1, 1, 0, 0, 0]  # the last vote is even
    per_class = majority_size_labels(target[:2], classes=3, threshold=torch.tensor([0.2, 0.6, 0.1]))
    assert per_class.tolist() == [1, 0]
