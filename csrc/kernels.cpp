// All that Python may call: the table that `_native.py` reads when it loads this library. A name
// may stand for float and for double.
#include "lovasz/kernels.h"

#include "common/kernel.h"
#include "labels/kernels.h"
#include "pooling/kernels.h"
#include "ranking/kernels.h"
#include "s_measures/kernels.h"
#include "topk/kernels.h"

#if defined(_WIN32)
#define EVALGRAD_API extern "C" __declspec(dllexport)
#else
#define EVALGRAD_API extern "C" __attribute__((visibility("default")))
#endif
#define EVALGRAD_BOTH(NAME, FUNCTION) kernel<FUNCTION<float>>(NAME), kernel<FUNCTION<double>>(NAME)

// Ends with an entry without a name.
EVALGRAD_API const evalgrad::Kernel* evalgrad_kernels() {
    using namespace evalgrad;
    static const Kernel kernels[] = {
        kernel<labels::binary_labels>("binary_labels"),
        kernel<labels::class_counts>("class_counts"),
        kernel<lovasz::softmax>("lovasz_softmax"),
        kernel<lovasz::softmax_bin_counts>("lovasz_bin_counts"),
        kernel<lovasz::softmax_bin_gradient>("lovasz_bin_gradient"),
        kernel<lovasz::rows>("lovasz_rows"),
        kernel<lovasz::prox>("lovasz_prox"),
        kernel<pooling::loss_max_pooling>("loss_max_pooling"),
        EVALGRAD_BOTH("smooth_topk", topk::smooth_topk),
        EVALGRAD_BOTH("topk_hinge", topk::topk_hinge),
        EVALGRAD_BOTH("direct_ranking", ranking::direct_ranking),
        EVALGRAD_BOTH("direct_jaccard", ranking::direct_jaccard),
        EVALGRAD_BOTH("direct_graded", ranking::direct_graded),
        EVALGRAD_BOTH("ap_structured", ranking::ap_structured),
        EVALGRAD_BOTH("weighted_errors", s_measures::weighted_errors),
        EVALGRAD_BOTH("error_totals", s_measures::error_totals),
        {nullptr, nullptr, nullptr},
    };
    return kernels;
}

// Why the last call in this thread failed.
EVALGRAD_API const char* evalgrad_error() { return evalgrad::error_text; }
