"""A SegNet (S-measures, section 4): the decoder unpools with the encoder's pooling indices."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from evalgrad_lab.models.unet import block


class SegNet(nn.Module):
    """Scores ``(N, outputs, H, W)`` of images of any size.

    Each stage has two convolutions and a pooling, mirrored in the decoder by an unpooling and two
    convolutions.

    Args:
        channels: of the image.
        outputs: number of classes.
        widths: channels of each stage; SegNet's own are (64, 128, 256, 512, 512), with more
            convolutions in the last three.
    """

    def __init__(self, channels: int, outputs: int, widths: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        before = [channels, *widths[:-1]]
        self.encoder = nn.ModuleList(
            nn.Sequential(block(low, high, bias=True), block(high, high, bias=True))
            for low, high in zip(before, widths, strict=True)
        )
        after = [widths[0], *widths[:-1]]
        self.decoder = nn.ModuleList(
            nn.Sequential(block(high, high, bias=True), block(high, low, bias=True))
            for low, high in zip(after, widths, strict=True)
        )
        self.head = nn.Conv2d(widths[0], outputs, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        side = 2 ** len(self.encoder)
        x = F.pad(images, (0, -width % side, 0, -height % side))
        places = []
        for stage in self.encoder:
            x, place = F.max_pool2d(stage(x), 2, return_indices=True)
            places.append(place)
        for stage in reversed(self.decoder):
            x = stage(F.max_unpool2d(x, places.pop(), (2, 2)))
        return self.head(x)[..., :height, :width]
