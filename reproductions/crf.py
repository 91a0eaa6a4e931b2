"""The dense CRF behind a network, by mean field (Krähenbühl and Koltun: Efficient inference in
fully connected CRFs with Gaussian edge potentials, 2011), with downsampled filtering.

Every pixel i exchanges messages with every cell j, a small square of pixels, by its mean place p,
its mean colour c and its mean probabilities. Two kernels weigh them,

    exp(-|p_i - p_j|^2 / 2 near^2),    exp(-|p_i - p_j|^2 / 2 far^2 - |c_i - c_j|^2 / 2 colour^2),

normalised to 1 for every pixel. Neighbours that are alike get the same label (Potts). Unlike there
a pixel hears its own cell, too, which holds the pixel itself.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Crf(NamedTuple):
    """The weights of the two messages, and the widths of the kernels: places in pixels, colours in
    the units of the image.
    """

    smooth: float = 1.0
    alike: float = 1.0
    near: float = 4.0
    far: float = 16.0
    colour: float = 0.4
    cell: int = 8
    steps: int = 5

    def __call__(self, probabilities: Tensor, images: Tensor) -> Tensor:
        """Probabilities ``(N, C, H, W)`` after mean field; images ``(N, channels, H, W)``."""
        height, width = images.shape[-2:]
        rows, columns = (torch.arange(side).to(images) for side in (height, width))
        apart = self._squares(torch.stack(torch.meshgrid(rows, columns, indexing="ij")))
        near = self.smooth * self._normalised(apart / self.near**2, images[0])
        far = apart / self.far**2
        found = []
        for some, image in zip(probabilities, images, strict=True):
            alike = self._normalised(far + self._squares(image / self.colour), image)
            found.append(self._mean_field(some, near + self.alike * alike))
        return torch.stack(found)

    def _mean_field(self, probabilities: Tensor, weights: Tensor) -> Tensor:
        """`weights` (pixels, cells) are the weights of the message from each cell to each pixel."""
        unary, found = probabilities.clamp(min=1e-8).log(), probabilities
        for _ in range(self.steps):
            message = weights @ self._cells(found).flatten(1).T  # (pixels, classes)
            found = (unary + message.T.reshape(unary.shape)).softmax(0)
        return found

    def _normalised(self, squares: Tensor, image: Tensor) -> Tensor:
        """The kernel of squared distances, whose sum over all pixels is 1."""
        pixels = self._cells(torch.ones_like(image[:1])).flatten()  # cells at the border are cut
        kernel = (-squares / 2).exp_()
        return kernel.div_((kernel @ pixels)[:, None].clamp(min=1e-12))

    def _squares(self, features: Tensor) -> Tensor:
        """(pixels, cells) squared distances of the features (channels, H, W)."""
        count = self._cells(torch.ones_like(features[:1]))
        means = (self._cells(features) / count).flatten(1)
        return torch.cdist(features.flatten(1).T, means.T).square_()

    def _cells(self, values: Tensor) -> Tensor:
        """Sums over the cells, as shares of a whole one: what lies beyond the border is 0."""
        height, width = values.shape[-2:]
        padded = F.pad(values, (0, -width % self.cell, 0, -height % self.cell))
        return F.avg_pool2d(padded[None], self.cell)[0]
