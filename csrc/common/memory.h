// Large buffers on huge pages where the system offers them: scattered writes then miss the TLB far
// less, and the first touch of a fresh gradient costs a tenth.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace evalgrad {

constexpr std::size_t kHugePage = std::size_t{1} << 21;

// A hint about memory that anyone allocated; without effect where it does not apply.
inline void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const std::uintptr_t begin =
        (reinterpret_cast<std::uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
    const std::uintptr_t end =
        (reinterpret_cast<std::uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// Uninitialised scratch memory of trivial elements; grows, never shrinks.
template <class T>
class Scratch {
public:
    T* reserve(int64_t count) {
        if (count > capacity_) {
            const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T),
                              rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
            void* memory =
                bytes > kHugePage ? std::aligned_alloc(kHugePage, rounded) : std::malloc(bytes);
            if (memory == nullptr) throw std::bad_alloc();
            advise_huge_pages(memory, bytes);
            data_.reset(static_cast<T*>(memory));
            capacity_ = count;
        }
        return data_.get();
    }
    T* data() const { return data_.get(); }

private:
    struct Free {
        void operator()(T* memory) const { std::free(memory); }
    };
    std::unique_ptr<T[], Free> data_;
    int64_t capacity_ = 0;
};

}  // namespace evalgrad
