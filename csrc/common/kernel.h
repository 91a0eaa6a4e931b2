// The bridge to Python: how a C++ function becomes a kernel that `_native.py` can call.
//
// A kernel is a function of pointers to tensors and of numbers, the number of threads last. The
// compiler itself writes down the type of each argument, so that what Python checks its tensors
// against cannot differ from what the function takes. No exception may cross a C interface: it
// becomes a status, and its text waits for `evalgrad_error`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <type_traits>

// Compiles a kernel for float and for double; `_native.py` chooses by the dtype of its first
// tensor.
#define EVALGRAD_FLOAT_AND_DOUBLE(FUNCTION)             \
    template decltype(FUNCTION<float>) FUNCTION<float>; \
    template decltype(FUNCTION<double>) FUNCTION<double>;

namespace evalgrad {

// A tensor that may be left out: null.
template <class T>
struct Optional {
    T* pointer;
    operator T*() const { return pointer; }
};

// A line of the table of kernels. Types: a letter per argument. A tensor has that of its dtype in
// capitals, or in small letters if it may be left out; a number has i (integer) or r (real).
struct Kernel {
    const char *name, *types;
    void (*function)();
};

template <class T>
constexpr char tensor_letter() {
    using Element = std::remove_const_t<T>;
    if (std::is_same_v<Element, float>) return 'F';
    if (std::is_same_v<Element, double>) return 'D';
    if (std::is_same_v<Element, int64_t>) return 'L';
    static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, double> ||
                  std::is_same_v<Element, int64_t> || std::is_same_v<Element, uint8_t>);
    return 'B';  // a bool: of any byte but 0 it is true, as `view(torch.bool)` may show
}

// How an argument of a kernel crosses the C interface, and its letter.
template <class T>
struct Argument {
    static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, double>);
    using Passed = T;
    static constexpr char letter = std::is_same_v<T, int64_t> ? 'i' : 'r';
};
template <class T>
struct Argument<T*> {
    using Passed = T*;
    static constexpr char letter = tensor_letter<T>();
};
template <class T>
struct Argument<Optional<T>> {
    using Passed = T*;
    static constexpr char letter = tensor_letter<T>() - 'A' + 'a';
};

enum Status : int { kDone = 0, kNoMemory = 1, kFailed = 2 };

inline thread_local char error_text[256];  // of the last call of this thread that failed

inline int failed(Status status, const char* text) {
    std::snprintf(error_text, sizeof error_text, "%s", text);
    return status;
}

// The function that Python calls.
template <auto function, class... Args>
int call(typename Argument<Args>::Passed... args) {
    try {
        function(Args{args}...);
        return kDone;
    } catch (const std::bad_alloc&) {
        return failed(kNoMemory, "out of memory");
    } catch (const std::exception& error) {
        return failed(kFailed, error.what());
    } catch (...) {
        return failed(kFailed, "unknown C++ exception");
    }
}

template <class... Args>
inline constexpr char types[] = {Argument<Args>::letter..., '\0'};

template <auto function, class... Args>
Kernel describe(const char* name, void (*)(Args...)) {
    return {name, types<Args...>, reinterpret_cast<void (*)()>(&call<function, Args...>)};
}

template <auto function>
Kernel kernel(const char* name) {
    return describe<function>(name, function);
}

}  // namespace evalgrad
