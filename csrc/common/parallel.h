// Independent tasks over the threads that torch computes with, else over std::thread.
//
// Torch's OpenMP workers spin for milliseconds after each of its operators. A thread of our own
// would share their core and gain nothing, so tasks go to that same team: GOMP_parallel of the
// OpenMP library that is in the process already, looked up at run time and never linked. A child
// forked after OpenMP's first use has lost the team and would wait for it for ever (DataLoader
// workers): there, and where no such library is loaded, tasks run on threads of their own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#include <pthread.h>
#endif

namespace evalgrad {

using OnTeam = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);

#if defined(__unix__) || defined(__APPLE__)
inline std::atomic<bool> forked{false};
inline const int watching =
    pthread_atfork(nullptr, nullptr, [] { forked = true; });  // from loading on, whoever forks

inline OnTeam torch_team() {
    static const auto team = reinterpret_cast<OnTeam>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return forked ? nullptr : team;
}
#else
inline OnTeam torch_team() { return nullptr; }
#endif

// The first exception of several threads, for the one that waits for them: none may leave a thread
// by itself.
class Caught {
public:
    template <class Work>
    void guard(const Work& work) {
        try {
            work();
        } catch (...) {
            if (!any_.exchange(true)) first_ = std::current_exception();
        }
    }
    bool any() const { return any_.load(std::memory_order_relaxed); }
    void raise() const {
        if (first_) std::rethrow_exception(first_);
    }

private:
    std::atomic<bool> any_{false};
    std::exception_ptr first_;
};

// Calls work(worker) with different workers in [0, workers), at the same time. There may be fewer
// of them: work must not wait for more.
template <class Work>
void on_threads(int workers, const Work& work) {
    struct Members {
        const Work& work;
        const int workers;
        std::atomic<int> next{0};
    } members{work, workers};
    const auto join = [](void* given) {
        auto& all = *static_cast<Members*>(given);
        const int worker = all.next.fetch_add(1, std::memory_order_relaxed);
        if (worker < all.workers) all.work(worker);
    };
    if (const OnTeam team = torch_team())
        return team(join, &members, 0, 0);  // 0: of torch's size; another would rebuild it
    std::vector<std::thread> others;
    others.reserve(workers - 1);
    try {
        for (int i = 1; i < workers; ++i) others.emplace_back(join, &members);
    } catch (const std::exception&) {  // no more threads, or no memory for one: these have to do
    }
    join(&members);
    for (auto& thread : others) thread.join();
}

// Calls task(i, worker) for i in [0, count); the worker number in [0, workers) picks a worker's own
// scratch memory. An exception in a task ends the others after the one they are at.
template <class Task>
void parallel_tasks(int64_t count, int workers, const Task& task) {
    workers = static_cast<int>(std::clamp<int64_t>(workers, 1, std::max<int64_t>(count, 1)));
    if (workers == 1) {
        for (int64_t i = 0; i < count; ++i) task(i, 0);
        return;
    }
    std::atomic<int64_t> next{0};
    Caught caught;
    on_threads(workers, [&](int worker) {
        caught.guard([&] {
            for (int64_t i;
                 !caught.any() && (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
                task(i, worker);
        });
    });
    caught.raise();
}

// Waking a thread costs some tens of microseconds: fewer elementary steps per worker than this are
// not worth one.
inline int useful_workers(int64_t steps, int threads) {
    constexpr int64_t kGrain = 1 << 15;
    return static_cast<int>(std::clamp<int64_t>(steps / kGrain, 1, std::max(threads, 1)));
}

}  // namespace evalgrad
