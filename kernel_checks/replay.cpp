// Makes recorded calls of the kernels again, with several numbers of threads, and compares every
// number that they leave with what was recorded; then, for so many seconds, the same calls with
// disturbed tensors, whose results must not depend on the number of threads. Usage: replay FILE
// SECONDS THREADS...
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/kernel.h"

using evalgrad::Kernel;
extern "C" const Kernel* evalgrad_kernels();

union Value {
    void* pointer;
    int64_t integer;
    double real;
};

// Written by __main__.py: a case for each list of types that was recorded.
#include "signatures.h"

struct Argument {
    char letter;
    bool given = true;
    std::vector<unsigned char> before, after;
    Value value{};

    bool is_tensor() const { return letter != 'i' && letter != 'r'; }
};

struct Call {
    std::string name, types;
    std::vector<Argument> arguments;
};

int64_t read_integer(std::ifstream& file) {
    int64_t value = 0;
    file.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
}

std::vector<unsigned char> read_bytes(std::ifstream& file, int64_t count) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(count));
    file.read(reinterpret_cast<char*>(bytes.data()), count);
    return bytes;
}

std::string read_text(std::ifstream& file) {
    const auto bytes = read_bytes(file, read_integer(file));
    return {bytes.begin(), bytes.end()};
}

bool read_call(std::ifstream& file, Call& call) {
    if (file.peek() == EOF) return false;
    call.name = read_text(file);
    call.types = read_text(file);
    call.arguments.clear();
    for (const char letter : call.types) {
        Argument argument{letter};
        if (letter == 'i') {
            argument.value.integer = read_integer(file);
        } else if (letter == 'r') {
            file.read(reinterpret_cast<char*>(&argument.value.real), sizeof(double));
        } else {
            const int64_t count = read_integer(file);
            argument.given = count >= 0;
            if (argument.given) {
                argument.before = read_bytes(file, count);
                argument.after = read_bytes(file, count);
            }
        }
        call.arguments.push_back(std::move(argument));
    }
    return true;
}

// Numbers of one tensor that differ; NaN is NaN, whatever its bits.
template <class T>
int64_t differences(const unsigned char* found, const std::vector<unsigned char>& expected,
                    double& largest) {
    int64_t count = 0;
    for (std::size_t at = 0; at + sizeof(T) <= expected.size(); at += sizeof(T)) {
        T x, y;
        std::memcpy(&x, found + at, sizeof x);
        std::memcpy(&y, expected.data() + at, sizeof y);
        if (std::memcmp(&x, &y, sizeof x) == 0 || (x != x && y != y)) continue;
        const double distance = std::abs(static_cast<double>(x) - static_cast<double>(y)) /
                                (1 + std::abs(static_cast<double>(y)));
        largest = std::fmax(largest, distance == distance ? distance : HUGE_VAL);
        ++count;
    }
    return count;
}

int64_t compared(const Argument& argument, const unsigned char* found, double& largest) {
    switch (argument.letter) {
        case 'F':
        case 'f':
            return differences<float>(found, argument.after, largest);
        case 'D':
        case 'd':
            return differences<double>(found, argument.after, largest);
        case 'L':
        case 'l':
            return differences<int64_t>(found, argument.after, largest);
        default:
            return differences<unsigned char>(found, argument.after, largest);
    }
}

// The call once more, on memory of exactly the size of each tensor; the tensors it leaves, in
// order, or none if it failed.
std::vector<std::unique_ptr<unsigned char[]>> replay(const Call& call, const Kernel& kernel,
                                                     int64_t threads) {
    std::vector<Value> values;
    std::vector<std::unique_ptr<unsigned char[]>> memory;
    for (const Argument& argument : call.arguments) {
        Value value = argument.value;
        if (argument.is_tensor()) {
            memory.emplace_back(argument.given ? new unsigned char[argument.before.size()]
                                               : nullptr);
            value.pointer = memory.back().get();
            if (!argument.before.empty())
                std::memcpy(value.pointer, argument.before.data(), argument.before.size());
        }
        values.push_back(value);
    }
    if (dispatch(call.types, kernel.function, values.data(), threads) == 0) return memory;
    std::printf("%s failed\n", call.name.c_str());
    return {};
}

// What was found in all calls.
struct Found {
    int64_t calls = 0, different = 0;
    double largest = 0;

    void compare(const Call& call, const Kernel& kernel, int64_t threads) {
        const auto memory = replay(call, kernel, threads);
        int64_t count = memory.empty();
        std::size_t tensor = 0;
        for (const Argument& argument : call.arguments) {
            if (memory.empty() || !argument.is_tensor()) continue;
            const unsigned char* found = memory[tensor++].get();
            if (argument.given) count += compared(argument, found, largest);
        }
        if (count && !different) std::printf("first difference: %s\n", call.name.c_str());
        different += count, ++calls;
    }
};

const double kHostile[] = {0.0,     -0.0,     1.0,       -1.0, 1e-45,    -1e-38, 1e30,
                           -3.4e38, HUGE_VAL, -HUGE_VAL, NAN,  1.000001, 0.5,    1e-300};

template <class T>
void write_number(unsigned char* to, std::mt19937_64& random) {
    T value = static_cast<T>(kHostile[random() % std::size(kHostile)]);
    if (random() % 2) {  // any bits at all
        const uint64_t bits = random();
        std::memcpy(&value, &bits, sizeof value);
    }
    std::memcpy(to, &value, sizeof value);
}

// Some elements of a tensor become copies of others, which makes ties, or, in floats and bools,
// anything. Labels get nothing new: kernels rely on their range, which Python has checked.
void disturb(Argument& argument, std::mt19937_64& random) {
    const char letter = static_cast<char>(std::toupper(argument.letter));
    const std::size_t size = letter == 'B' ? 1 : letter == 'F' ? 4 : 8;
    const std::size_t items = argument.before.size() / size;
    if (!items || random() % 3 == 0) return;
    unsigned char* data = argument.before.data();
    const std::size_t source = random() % items;
    for (std::size_t places = 1 + random() % items; places > 0; --places) {
        unsigned char* to = data + random() % items * size;
        const uint64_t kind = random() % 4;
        if (kind == 0 && letter == 'F')
            write_number<float>(to, random);
        else if (kind == 0 && letter == 'D')
            write_number<double>(to, random);
        else if (kind == 0 && letter == 'B')
            *to = static_cast<unsigned char>(random());
        else
            std::memmove(to, data + (kind == 1 ? source : random() % items) * size, size);
    }
}

// A disturbed call by one number of threads is what the others are compared with.
void fuzz(Call call, const Kernel& kernel, int threads, char** counts, std::mt19937_64& random,
          Found& found) {
    for (Argument& argument : call.arguments)
        if (argument.is_tensor() && argument.given) disturb(argument, random);
    const auto memory = replay(call, kernel, std::atoll(counts[0]));
    std::size_t tensor = 0;
    for (Argument& argument : call.arguments) {
        if (memory.empty() || !argument.is_tensor()) continue;
        const unsigned char* left = memory[tensor++].get();
        if (argument.given) argument.after.assign(left, left + argument.before.size());
    }
    found.different += memory.empty(), ++found.calls;
    for (int i = 1; i < threads; ++i) found.compare(call, kernel, std::atoll(counts[i]));
}

void report(const char* what, const Found& found) {
    std::printf("%s%lld calls, %lld numbers differ, by at most %.3g", what,
                static_cast<long long>(found.calls), static_cast<long long>(found.different),
                found.largest);
}

int main(int argc, char** argv) {
    std::map<std::string, const Kernel*> kernels;
    for (const Kernel* kernel = evalgrad_kernels(); kernel->name; ++kernel) {
        const std::string types = kernel->types;  // the last letter is that of the threads
        kernels[kernel->name + (":" + types.substr(0, types.size() - 1))] = kernel;
    }
    std::map<const Kernel*, std::vector<Call>> calls;
    std::ifstream file(argv[1], std::ios::binary);
    for (Call call; read_call(file, call);) {
        const auto kernel = kernels.find(call.name + ":" + call.types);
        if (kernel == kernels.end()) {
            std::printf("no kernel %s of types %s\n", call.name.c_str(), call.types.c_str());
            return 2;
        }
        calls[kernel->second].push_back(std::move(call));
    }
    Found recorded, disturbed;
    for (const auto& [kernel, of] : calls)
        for (const Call& call : of)
            for (int i = 3; i < argc; ++i) recorded.compare(call, *kernel, std::atoll(argv[i]));
    report("", recorded);

    // All kernels in turn, however many calls of each were recorded, and each of them once at
    // least.
    using Clock = std::chrono::steady_clock;
    const double seconds = std::atof(argv[2]);
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    std::mt19937_64 random(0);
    int64_t rounds = 0;
    for (; seconds > 0 && (Clock::now() < end || !rounds); ++rounds)
        for (const auto& [kernel, of] : calls)
            fuzz(of[random() % of.size()], *kernel, argc - 3, argv + 3, random, disturbed);
    std::printf("; %zu kernels, %lld times each, ", calls.size(), static_cast<long long>(rounds));
    report("disturbed: ", disturbed);
    std::printf("\n");
    return recorded.different || disturbed.different ? 1 : 0;
}
