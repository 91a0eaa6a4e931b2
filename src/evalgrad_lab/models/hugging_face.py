"""A network of Hugging Face's transformers, from the configuration in a model folder."""

from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from evalgrad_lab.errors import UserError
from evalgrad_lab.store import read_json


class HuggingFace(nn.Module):
    """Scores of images by the model that a configuration names; those of pixels are brought to the
    size of the image.

    Args:
        channels: of the image; the configuration must agree.
        outputs: number of classes; 1 for binary tasks.
        config: what `config.json` of a model folder holds.
        task: "segmentation", or else one answer for each image.
    """

    def __init__(self, channels: int, outputs: int, config: dict[str, Any], task: str) -> None:
        super().__init__()
        known = {name: value for name, value in config.items() if name not in LABELS}
        if known.get("num_channels", channels) != channels:
            raise ValueError(
                f"it takes {known['num_channels']} channels; the images have {channels}."
            )
        self.dense = task == "segmentation"
        made = _transformers().AutoConfig.for_model(**known, num_labels=outputs)
        self.model = self._family().from_config(made, trust_remote_code=False)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.model(pixel_values=images).logits
        if not self.dense:
            return scores
        return F.interpolate(scores, size=images.shape[-2:], mode="bilinear")

    def load_folder(self, folder: Path) -> dict[str, set[str]]:
        """Take the weights of a model folder, which transformers itself reads: it has names of its
        own for files. Returns the names that are missing or of another shape, and those
        that have no place.
        """
        how = {"ignore_mismatched_sizes": True, "output_loading_info": True}
        model, found = self._family().from_pretrained(
            folder, config=self.model.config, local_files_only=True, trust_remote_code=False, **how
        )
        self.model.load_state_dict(model.state_dict())
        wrong = {name for name, *_ in found["mismatched_keys"]}
        return {
            "missing": set(found["missing_keys"]) | wrong,
            "unused": set(found["unexpected_keys"]),
        }

    def _family(self) -> Any:
        kind = "SemanticSegmentation" if self.dense else "ImageClassification"
        return getattr(_transformers(), f"AutoModelFor{kind}")


LABELS = ("id2label", "label2id", "num_labels", "auto_map")  # the last names code to run
WRITTEN = "Pass a folder that was written by save_pretrained of transformers as --model."


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model folder."""
    path = folder / "config.json"
    config = read_json(path, WRITTEN)
    if "model_type" not in config:
        raise UserError(f"{path} has no model_type. {WRITTEN}")
    return config


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        install = "pip install '.[transformers]' in a clone of evalgrad"
        raise UserError(f"--model: a Hugging Face folder needs transformers: {install}.") from error
    return transformers
