"""Lightning's Trainer as the lab sets it up: checkpoints `best` and `last`, early stopping, logs,
resuming.
"""

import importlib.util
import io
import json
import logging
import signal
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import nn

from evalgrad_lab.data.loading import Loaders
from evalgrad_lab.errors import UserError
from evalgrad_lab.store import write_atomically
from evalgrad_lab.training.module import Training
from evalgrad_lab.training.saved import check_weights

# A run may go on elsewhere: these options do not change what it computes.
ELSEWHERE = {
    "out",
    "resume",
    "devices",
    "num_nodes",
    "strategy",
    "accelerator",
    "workers",
    "logger",
}


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


def make_trainer(options: Namespace, epochs: int, progress: bool) -> lightning.Trainer:
    """The trainer; nothing is written before it starts."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    checkpoint = {
        "dirpath": options.out,
        "save_on_train_epoch_end": True,
        "enable_version_counter": False,
    }
    callbacks: list[Callback] = [
        ModelCheckpoint(filename="best", monitor="metric", mode="max", **checkpoint),
        ModelCheckpoint(filename="last", **checkpoint),
    ]
    if options.patience:
        callbacks.append(EarlyStopping("metric", mode="max", patience=options.patience))
    where = {
        name: getattr(options, name) for name in ("accelerator", "devices", "num_nodes", "strategy")
    }
    logger = _logger(options)
    try:
        return lightning.Trainer(
            **where,
            max_epochs=epochs,
            logger=logger,
            callbacks=callbacks,
            plugins=[AtomicCheckpoints()],
            use_distributed_sampler=False,  # EpochOrder does it
            num_sanity_val_steps=0,
            enable_model_summary=False,
            enable_progress_bar=progress,
            log_every_n_steps=1,
        )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"lightning cannot train with {where}: {reason} Change these options."
        ) from error


def _logger(options: Namespace) -> Logger:
    if options.logger == "csv":
        return CSVLogger(options.out, name="logs")
    if not importlib.util.find_spec("tensorboard"):
        raise UserError(
            "--logger tensorboard: tensorboard is not installed. Run `pip install tensorboard`, or"
            " take --logger csv."
        )
    return TensorBoardLogger(options.out, name="logs")


def checkpoint_to_resume(options: Namespace, module: Training) -> Path | None:
    """The checkpoint to go on from, checked against the options and the network; None to begin."""
    if options.resume == "never":
        return None
    if options.resume != "auto":
        return checked_checkpoint(Path(options.resume), module.network)
    last = Path(options.out) / "last.ckpt"
    if not last.exists():
        return None
    _check_same_options(options)
    return checked_checkpoint(last, module.network)


def checked_checkpoint(path: Path, network: nn.Module) -> Path:
    """`path`, if its network is this one."""
    check_weights(path, network_weights(path), network)
    return path


def network_weights(path: Path) -> dict[str, torch.Tensor]:
    """The weights of the network in a checkpoint, read without running any code of it."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    except Exception as error:  # torch.load raises whatever a foreign file makes it raise
        reason = type(error).__name__  # torch's own words are a page long
        raise UserError(
            f"{path} cannot be read as a checkpoint ({reason}). Give the last.ckpt of an `evalgrad"
            " train`."
        ) from error
    prefix = "network."
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }


def best_score(trainer: lightning.Trainer) -> float:
    """The best metric on validation data of the whole run, that before a resume included."""
    best = trainer.checkpoint_callbacks[0]
    assert isinstance(best, ModelCheckpoint)
    assert best.best_model_score is not None
    return float(best.best_model_score)


def remember_options(options: Namespace) -> None:
    """Write down what the run is, to refuse another one in its folder; it is not finished now."""
    (Path(options.out) / "result.json").unlink(missing_ok=True)
    write_atomically(
        Path(options.out) / "options.json",
        json.dumps(_plain(options), indent=1, sort_keys=True).encode(),
    )


def _check_same_options(options: Namespace) -> None:
    path = Path(options.out) / "options.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    for name, value in _plain(options).items():
        if name in before and before[name] != value:
            raise UserError(
                f"{options.out} holds a run with --{name.replace('_', '-')} {before[name]}; got"
                f" {value}. Choose another --out, give the old option to go on, or --resume never"
                " to begin again."
            )


def _plain(options: Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name not in ELSEWHERE}


def fit(
    trainer: lightning.Trainer, module: Training, loaders: Loaders, checkpoint: Path | None
) -> None:
    """Train. A loader without worker processes is a choice here, not an oversight to warn of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        # lightning 2.6 on torch 2.13
        warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated.*")
        warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
        handler = signal.getsignal(signal.SIGINT)
        try:
            trainer.fit(module, datamodule=loaders, ckpt_path=checkpoint, weights_only=True)
        except SystemExit as error:  # what lightning makes of Ctrl-C, which it ignores from then on
            signal.signal(signal.SIGINT, handler)
            raise KeyboardInterrupt from error
