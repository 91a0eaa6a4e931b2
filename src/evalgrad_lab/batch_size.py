"""The default batch size: large enough that few batches of a ranking teach it nothing."""

from torch import Tensor

from evalgrad_lab.commands.train import TrainOptions
from evalgrad_lab.data.dataset import Dataset, Examples

BATCH = 16  # the default; doubled while too many batches would have no positive
VOID = 0.05  # share of such batches that is accepted


def batch_size_of(options: TrainOptions, data: Dataset[Examples]) -> tuple[int, str]:
    """The batch size and a note on it: a batch without a positive teaches a ranking nothing. Of
    several labels the rarest decides.
    """
    asked, train = options.batch_size or BATCH, data.train
    if options.task not in ("ranking", "multilabel"):
        return asked, ""
    if train.lists is not None:
        return asked, _list_note(train.labels(), train.lists)
    positives = train.labels().double().mean(0)
    negatives = 1 - float(positives.min())
    size = asked
    while options.batch_size is None and negatives**size > VOID and size < len(train):
        size *= 2
    which = f" of {data.classes[int(positives.argmin())]}" if positives.ndim else ""
    void = f"{negatives**asked:.0%} of the batches of {asked} would have no positive{which}"
    if size != asked:
        return size, f"--batch-size {size} is used: {void}."
    return asked, f"{void}; a larger --batch-size helps." if negatives**asked > 0.5 else ""


def _list_note(labels: Tensor, lists: list[int]) -> str:
    """Where most lists teach a ranking nothing, whatever the batch size."""
    every, with_positive = set(lists), {lists[i] for i in labels.nonzero()[:, 0].tolist()}
    void = 1 - len(with_positive) / len(every)
    return (
        f"{void:.0%} of the training lists have no positive: a loss of the ranking learns nothing"
        " from them. Leave them out, or use longer lists."
        if void > 0.5
        else ""
    )
