"""Run records of the size a real comparison has, drawn from seeds: eight tasks, four to seven
losses, up to three budgets.
"""

import numpy as np

BUDGETS = ["500 iterations", "1200 iterations", "equal time"]
CLASSES = ["background", *map(str, range(10))]
# task, metric, its other metrics, designed, budgets, losses as (name, role, level of the test
# metric)
TASKS = [
    (
        "digit-scenes",
        "dataset mIoU",
        ["image mIoU"],
        False,
        BUDGETS,
        [
            ("cross_entropy", "baseline", 0.33),
            ("weighted_cross_entropy", "baseline", 0.52),
            ("bootstrapped_cross_entropy", "baseline", 0.49),
            ("soft_jaccard", "baseline", 0.538),
            ("lovasz_softmax", "ours", 0.60),
            ("cross_entropy+lovasz_softmax", "ours", 0.555),
            ("loss_max_pooling", "ours", 0.521),
        ],
    ),
    (
        "strokes",
        "image IoU",
        [],
        False,
        BUDGETS[::2],
        [
            ("bce", "baseline", 0.323),
            ("bce, tuned threshold", "baseline", 0.366),
            ("hinge", "baseline", 0.265),
            ("lovasz_hinge", "ours", 0.333),
        ],
    ),
    (
        "teacher-ranking",
        "average precision",
        [],
        False,
        ["300 iterations"],
        [
            ("logistic", "baseline", 0.948),
            ("hinge_01", "baseline", 0.936),
            ("ap_hinge", "baseline", 0.947),
            ("direct_ap", "ours", 0.949),
            ("direct_ap_negative", "ours", 0.897),
        ],
    ),
    (
        "hopeless-positives",
        "average precision",
        ["ROC AUC"],
        True,
        ["400 iterations", "equal time"],
        [
            ("bce", "baseline", 0.206),
            ("weighted_bce", "baseline", 0.21),
            ("ap_hinge", "baseline", 0.186),
            ("direct_ap", "ours", 0.432),
        ],
    ),
    (
        "noisy-digits",
        "mean average precision",
        [],
        False,
        ["400 iterations", "equal time"],
        [
            ("bce", "baseline", 0.90),
            ("weighted_bce", "baseline", 0.895),
            ("ap_hinge", "baseline", 0.88),
            ("direct_ap", "ours", 0.925),
        ],
    ),
    (
        "digits-100",
        "top-5 accuracy",
        ["top-1 accuracy"],
        False,
        ["600 iterations", "equal time"],
        [
            ("cross_entropy", "baseline", 0.828),
            ("smooth_topk t=1", "ours", 0.84),
            ("smooth_topk t=0.1", "ours", 0.864),
            ("topk_hinge", "ours", 0.79),
        ],
    ),
    (
        "two-mode",
        "recall at precision 0.9",
        ["average precision", "F1"],
        True,
        ["500 iterations"],
        [
            ("bce", "baseline", 0.044),
            ("weighted_bce", "baseline", 0.47),
            ("direct_ap", "ours", 0.513),
            ("f1_ratio", "ours", 0.01),
            ("recall_at_precision", "ours", 0.554),
        ],
    ),
    (
        "digits-100 without noise",
        "top-5 accuracy",
        [],
        False,
        ["600 iterations"],
        [
            ("cross_entropy", "baseline", 0.99),
            ("label_smoothing", "baseline", 0.985),
            ("smooth_topk t=1", "ours", 0.975),
            ("smooth_topk t=0.1", "ours", 0.98),
        ],
    ),
]
SEGMENTATION = {"digit-scenes", "strokes"}


def comparison(seeds=5, reversed_roles=False, tasks=TASKS):
    """A comparison; `reversed_roles` swaps baseline and ours, so that every win becomes a loss."""
    records = [
        _record(task, loss, budget, seed, reversed_roles)
        for task in tasks
        for budget in task[4]
        for loss in task[5]
        for seed in range(seeds)
    ]
    return {
        "records": records,
        "command": "evalgrad compare --seeds 5 --out runs/<demo> && echo 'done'",
        "versions": {"evalgrad": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
        "machine": {"system": "Linux", "processor": "x86_64", "cores": 2},
    }


def _record(task, loss, budget, seed, reversed_roles):
    name, metric, others, designed, _, _ = task
    loss_name, role, level = loss
    # The seed's own ease is shared by the losses, as in a paired design.
    noise = np.random.default_rng([seed, *f"{name}{loss_name}{budget}".encode()])
    ease = np.random.default_rng([seed, *name.encode()]).normal(0, 0.015)
    level = level + {"1200 iterations": 0.5 * (0.69 - level), "equal time": -0.02}.get(budget, 0)
    value = float(np.clip(level + ease + noise.normal(0, 0.006), 0, 1))
    iterations = int(budget.split()[0]) if budget[0].isdigit() else int(300 + 200 * noise.random())
    step = 12 + 3 * (role == "ours") + noise.random()
    return {
        "task": name,
        "title": f"{name.replace('-', ' ').capitalize()}: {metric} on embedded data",
        "description": (
            f"A small network is judged by {metric}; every loss had the same search on validation."
        ),
        "designed": designed,
        "loss": loss_name,
        "role": {"baseline": "ours", "ours": "baseline"}[role] if reversed_roles else role,
        "budget": budget,
        "seed": seed,
        "hyper": {
            "learning_rate": 0.012,
            "weight_decay": 0.0001,
            "class_weight": loss_name.startswith("weighted"),
        },
        "metric": metric,
        "test": {
            metric: value,
            **{other: float(np.clip(value + noise.normal(0, 0.05), 0, 1)) for other in others},
        },
        "validation": {metric: level},
        "curve": _curve(noise, iterations, step, value),
        "per_class": (
            {"labels": CLASSES, "values": _per_class(noise, value)}
            if name in SEGMENTATION
            else None
        ),
        "examples": (
            [_example(noise, index, 1 - value) for index in range(3)]
            if name in SEGMENTATION and seed == 0
            else None
        ),
        "iterations": iterations,
        "seconds": iterations * step / 1000,
        "milliseconds_per_step": step,
        "loss_milliseconds": float(1 + noise.random()),
        "peak_megabytes": float(200 + 20 * noise.random()),
    }


def _curve(noise, iterations, step, value):
    share = np.linspace(0.05, 1, 20)
    metric = np.clip(value * (1 - np.exp(-4 * share)) + noise.normal(0, 0.01, 20), 0, 1)
    loss = 2.5 * np.exp(-2.5 * share) + 0.2 + noise.normal(0, 0.03, 20)
    return [
        {
            "iteration": round(part * iterations),
            "seconds": part * iterations * step / 1000,
            "loss": float(a),
            "metric": float(b),
        }
        for part, a, b in zip(share, loss, metric)
    ]


def _per_class(noise, value):
    return np.clip(
        np.linspace(1.5, 0.5, len(CLASSES)) * value + noise.normal(0, 0.03, len(CLASSES)), 0, 1
    ).tolist()


def _example(noise, index, mistakes):
    y, x = np.mgrid[:32, :32]
    target = np.zeros((32, 32), int)
    for label in range(1, 3):
        row, column = np.random.default_rng([index, label]).integers(7, 25, 2)
        distance = np.hypot(y - row, x - column)
        target[(distance > 3) & (distance < 7)] = label + index
    blobs = noise.random((8, 8)).repeat(4, 0).repeat(4, 1) < mistakes / 2
    prediction = np.where(blobs & (target > 0), noise.integers(0, 11), target)
    image = np.clip(
        (target > 0) * 0.8 + np.random.default_rng(index).normal(0.1, 0.1, (32, 32)), 0, 1
    ).round(3)
    return {"image": image.tolist(), "target": target.tolist(), "prediction": prediction.tolist()}
