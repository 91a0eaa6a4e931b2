// Large buffers on huge pages where the system offers them: scattered writes then miss the TLB far
// less, and the first touch of a fresh gradient costs a tenth.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace evalgrad {

constexpr std::size_t kHugePage = std::size_t{1} << 21;

// For sanitizers, which see no step beyond memory that is larger than what was asked for: none is
// kept, all is of exactly its size, and full of NaN or -1 for whoever reads what nobody has
// written.
#ifdef EVALGRAD_EXACT_MEMORY
constexpr bool kExactMemory = true;
#else
constexpr bool kExactMemory = false;
#endif

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

// Memory of small calls, kept by the thread from one to the next: to give it back to the system and
// to ask for it again would take longer than their work. At most 4 MB per thread.
class KeptMemory {
public:
    struct Piece {
        void* memory = nullptr;
        std::size_t bytes = 0;
    };
    // One of at least so many bytes, or none.
    Piece take(std::size_t bytes) {
        for (Piece& piece : pieces_)
            if (piece.bytes >= bytes) return std::exchange(piece, Piece{});
        return {};
    }
    // Frees what is too large, or finds no place.
    void give(Piece given) {
        if (given.bytes <= kLargest && !kExactMemory)
            for (Piece& piece : pieces_)
                if (piece.bytes < given.bytes) std::swap(piece, given);
        std::free(given.memory);
    }
    ~KeptMemory() {
        for (const Piece& piece : pieces_) std::free(piece.memory);
    }

private:
    static constexpr std::size_t kLargest = std::size_t{1} << 19;
    Piece pieces_[8];
};
inline thread_local KeptMemory kept_memory;

// Uninitialised scratch memory of trivial elements; grows, never shrinks.
template <class T>
class Scratch {
public:
    Scratch() = default;
    Scratch(Scratch&& other) noexcept : piece_(std::exchange(other.piece_, {})) {}
    Scratch& operator=(Scratch&&) = delete;
    ~Scratch() { kept_memory.give(piece_); }

    T* reserve(int64_t count) {
        const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
        if (kExactMemory ? bytes == piece_.bytes : bytes <= piece_.bytes) return data();
        kept_memory.give(std::exchange(piece_, {}));
        piece_ = kept_memory.take(bytes);
        if (piece_.memory == nullptr) piece_ = {allocate(bytes), bytes};
        return data();
    }
    T* data() const { return static_cast<T*>(piece_.memory); }

private:
    KeptMemory::Piece piece_;

    static void* allocate(std::size_t bytes) {
        const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
        void* memory = bytes > kHugePage && !kExactMemory ? std::aligned_alloc(kHugePage, rounded)
                                                          : std::malloc(bytes);
        if (memory == nullptr) throw std::bad_alloc();
        if (kExactMemory) std::memset(memory, 0xff, bytes);
        advise_huge_pages(memory, bytes);
        return memory;
    }
};

}  // namespace evalgrad
