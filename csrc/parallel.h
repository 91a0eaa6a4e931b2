// Independent tasks over std::thread. OpenMP would hang in a child forked after its first use (DataLoader workers).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace evalgrad {

// Calls task(i, worker) for i in [0, count); the worker number in [0, workers) picks a worker's own scratch memory.
template <class Task>
void parallel_tasks(int64_t count, int workers, const Task& task) {
    workers = static_cast<int>(std::clamp<int64_t>(workers, 1, std::max<int64_t>(count, 1)));
    std::atomic<int64_t> next{0};
    const auto work = [&](int worker) {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(i, worker);
    };
    std::vector<std::thread> others;
    others.reserve(workers - 1);
    for (int worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
    work(0);
    for (auto& thread : others) thread.join();
}

// Starting a thread costs some tens of microseconds: fewer than `grain` elementary steps per worker are not worth one.
inline int useful_workers(int64_t steps, int threads, int64_t grain = 1 << 15) {
    return static_cast<int>(std::clamp<int64_t>(steps / grain, 1, std::max(threads, 1)));
}

}  // namespace evalgrad
