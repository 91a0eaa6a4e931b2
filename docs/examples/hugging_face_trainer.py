"""A loss in the style of Hugging Face: override `compute_loss` of a `Trainer` and keep the rest.
Runs without transformers.
"""

from typing import Any

import torch

import evalgrad as eg


class MetricLoss:
    """Mix in before the trainer: ``class Mine(MetricLoss, transformers.Trainer)``."""

    criterion = eg.distributed.global_batch(eg.SmoothTopKLoss(k=5, temperature=0.1))

    def compute_loss(
        self, model: Any, inputs: dict[str, torch.Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        outputs = model(**{name: x for name, x in inputs.items() if name != "labels"})
        loss = self.criterion(outputs["logits"], inputs["labels"])
        return (loss, outputs) if return_outputs else loss


class Classifier(torch.nn.Linear):
    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": super().forward(pixel_values)}


model, inputs = (
    Classifier(16, 10),
    {
        "pixel_values": torch.randn(8, 16),
        "labels": torch.randint(10, (8,)),
    },
)
value, outputs = MetricLoss().compute_loss(model, inputs, return_outputs=True)
value.backward()
print(f"loss {value.item():.4f} of logits {tuple(outputs['logits'].shape)}")
