"""The loss inside pytorch-metric-learning (`pip install pytorch-metric-learning`), with its
interface: loss(embeddings, labels).

    python docs/examples/metric_learning_loss.py
"""

import torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.utils import common_functions as checks

import evalgrad as eg


class RetrievalAPLoss(losses.BaseMetricLossFunction):
    """Mean average precision of the batch; past batches by `eg.distributed.CrossBatchMemory`."""

    def __init__(self, epsilon: float = 0.01, **options):
        super().__init__(**options)
        self.loss = eg.RetrievalAveragePrecisionLoss(epsilon=epsilon)

    def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
        checks.indices_tuple_not_supported(indices_tuple)  # there is nothing to mine
        checks.ref_not_supported(embeddings, labels, ref_emb, ref_labels)
        loss = self.loss(embeddings, labels)
        return {"loss": {"losses": loss, "indices": None, "reduction_type": "already_reduced"}}


if __name__ == "__main__":
    torch.manual_seed(0)
    points = torch.randn(5, 16).repeat_interleave(8, 0) + 1.5 * torch.randn(40, 16)
    labels = torch.arange(5).repeat_interleave(8)
    model = torch.nn.Linear(16, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = losses.MultipleLosses([RetrievalAPLoss(), losses.NTXentLoss()], weights=[1.0, 0.1])
    for step in range(60):
        optimizer.zero_grad()
        value = loss(model(points), labels)
        value.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {value.item():.3f}")
    lists = eg.metrics.retrieval_lists(model(points), labels)
    print(f"MAP@R {eg.metrics.map_at_r(lists[0], lists[1], mask=lists[2]).item():.3f}")
