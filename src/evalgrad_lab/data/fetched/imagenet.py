"""Twenty photographs of ImageNet with their classes, and a network's scores of 1000 classes on
crops of them.
"""

import re

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from evalgrad_lab.data.fetched import EFFICIENTNET, place
from evalgrad_lab.models.efficientnet_lite import efficientnet_lite0
from evalgrad_lab.models.weights import load_weights

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE, SMALLER = 224, 256


def ten_crop_scores() -> tuple[Tensor, Tensor]:
    """Scores (20, 10, 1000) of EfficientNet-Lite0 on the ten crops of each photograph, and the
    classes (20,).
    """
    photographs = [
        _photograph(path.name)
        for path in sorted(place("imagenet-logits", "foolbox", "data").glob("imagenet_*"))
    ]
    model = efficientnet_lite0()
    load_weights(model, place(*EFFICIENTNET))
    model.eval()
    with torch.no_grad():
        scores = torch.stack([model(ten_crops(image)) for image, _ in photographs])
    return scores, torch.tensor([label for _, label in photographs])


def _photograph(name: str) -> tuple[Tensor, int]:
    """The normalised image whose smaller side is 256, and the class in the file's name, such as
    imagenet_07_609.jpg.
    """
    with Image.open(place("imagenet-logits", "foolbox", "data", name)) as image:
        scale = SMALLER / min(image.size)
        small = image.convert("RGB").resize(
            (round(image.width * scale), round(image.height * scale))
        )
        pixels = torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1).float() / 255
    (label,) = re.findall(r"imagenet_\d+_(\d+)\.", name)
    return (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[
        :, None, None
    ], int(label)


def ten_crops(image: Tensor) -> Tensor:
    """(3, H, W) -> (10, 3, 224, 224): the corners and the centre, and their mirror images."""
    height, width = image.shape[1] - SIDE, image.shape[2] - SIDE
    corners = [(0, 0), (0, width), (height, 0), (height, width), (height // 2, width // 2)]
    crops = torch.stack([image[:, y : y + SIDE, x : x + SIDE] for y, x in corners])
    return torch.cat([crops, crops.flip(-1)])
