"""S-measures: nondecomposable measures as regularisers and constraints of any network."""

from evalgrad.s_measures.areas import PRAUC, ROCAUC, PartialROCAUC
from evalgrad.s_measures.measures import (
    FBeta,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
)
from evalgrad.s_measures.projection import project_onto_ceiling
from evalgrad.s_measures.size_head import SizeHead, SizeLabels, majority_size_labels

__all__ = [
    "PRAUC",
    "ROCAUC",
    "FBeta",
    "PartialROCAUC",
    "PrecisionAtRecall",
    "RecallAtPrecision",
    "SensitivityAtSpecificity",
    "SizeHead",
    "SizeLabels",
    "majority_size_labels",
    "project_onto_ceiling",
]
