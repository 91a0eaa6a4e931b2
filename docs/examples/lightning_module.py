"""An evalgrad loss inside a Lightning module: correct on one device, and under `strategy="ddp"` on
many.
"""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import evalgrad as eg


class Segmenter(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.loss = eg.distributed.global_batch(eg.LovaszSoftmaxLoss(ignore_index=255))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, target = batch
        return self.loss(self.model(images), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = TensorDataset(torch.randn(16, 3, 16, 16), torch.randint(4, (16, 16, 16)))
quiet = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet)
trainer.fit(Segmenter(), DataLoader(data, batch_size=8))
print(f"trained {trainer.global_step} steps")
