"""A paper's full setting, from its config to a trained network, for a machine that has the data and
the GPU.
"""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO

from evalgrad_lab.errors import UserError
from evalgrad_lab.saved import check_weights
from evalgrad_lab.store import write_atomically
from reproductions.configs import Config
from reproductions.full_setting.data import loader, prepared
from reproductions.full_setting.module import FullSetting

DRY_BATCH = 2


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoints that are old or new after a kill, never half: lightning's own way is a copy where
    /tmp is another disk.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        write_atomically(Path(path), buffer.getvalue())


def train(
    config: Config, root: Path, out: Path, *, weights: Path | None = None, workers: int = 4
) -> float:
    """Train as the config says; `out` holds `best.ckpt` and `last.ckpt`, and the same call goes on
    from the latter.
    """
    batch = config.training["batch"]
    parts = {split: prepared(config, root, split, dry=False) for split in ("train", "validation")}
    loaders = {split: loader(config, part, split, batch, workers) for split, part in parts.items()}
    steps = config.training.get("steps") or config.training["epochs"] * len(loaders["train"])
    module = _module(config, steps, weights)
    best = ModelCheckpoint(out, "best", monitor="metric", mode="max", enable_version_counter=False)
    last = ModelCheckpoint(out, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    logger = CSVLogger(out, name="logs")
    trainer = lightning.Trainer(
        max_steps=steps, callbacks=[best, last], plugins=[AtomicCheckpoints()], logger=logger
    )
    latest = out / "last.ckpt"
    with _without_idle_warnings():
        resumed = latest if latest.exists() else None
        trainer.fit(
            module, loaders["train"], loaders["validation"], ckpt_path=resumed, weights_only=True
        )
    return float(trainer.callback_metrics["metric"])


def dry_run(config: Config, root: Path, *, weights: Path | None = None) -> str:
    """Build everything and take one training and one validation step on small crops; what was
    built, and the notes.
    """
    first, second = (
        loader(config, prepared(config, root, split, dry=True), split, DRY_BATCH, 0)
        for split in ("train", "validation")
    )
    steps = config.training.get("steps") or config.training["epochs"] * len(first)
    module = _module(config, steps, weights)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(fast_dev_run=True, accelerator="cpu", **quiet)
    with _without_idle_warnings():
        trainer.fit(module, first, second)
    loss, metric = (float(trainer.callback_metrics[name]) for name in ("loss", "metric"))
    size = sum(parameter.numel() for parameter in module.network.parameters()) / 1e6
    said = (
        f"{size:.1f} million parameters, one step done: loss {loss:.4g}, {config.metric}"
        f" {metric:.3f}."
    )
    return f"{config.title}: {said} {config.notes}"


@contextmanager
def _without_idle_warnings() -> Iterator[None]:
    """Lightning's advice about things that are choices here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
        warnings.filterwarnings("ignore", ".*is smaller than the logging interval.*")
        # lightning 2.6 on torch 2.13
        warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated.*")
        yield


def _module(config: Config, steps: int, weights: Path | None) -> FullSetting:
    module = FullSetting(config, steps)
    if weights is not None:
        try:
            state = torch.load(weights, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises whatever a foreign file makes it raise
            raise UserError(
                f"--weights: {weights} cannot be read as weights. Save them as"
                " torch.save(network.state_dict())."
            ) from error
        check_weights(weights, state, module.network)
        module.network.load_state_dict(state)
    return module
