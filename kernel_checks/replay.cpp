// Makes recorded calls of the kernels again, with several numbers of threads, and compares every
// number that they leave with what was recorded. Usage: replay FILE THREADS...
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/kernel.h"

extern "C" const evalgrad::Kernel* evalgrad_kernels();

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

// The call once more, on memory of exactly the size of each tensor.
int64_t replay(const Call& call, const evalgrad::Kernel& kernel, int64_t threads, double& largest) {
    std::vector<Value> values;
    std::vector<std::unique_ptr<unsigned char[]>> memory;
    for (const Argument& argument : call.arguments) {
        Value value = argument.value;
        if (argument.letter != 'i' && argument.letter != 'r') {
            memory.emplace_back(argument.given ? new unsigned char[argument.before.size()] : nullptr);
            value.pointer = memory.back().get();
            if (!argument.before.empty())
                std::memcpy(value.pointer, argument.before.data(), argument.before.size());
        }
        values.push_back(value);
    }
    if (dispatch(call.types, kernel.function, values.data(), threads) != 0) {
        std::printf("%s failed\n", call.name.c_str());
        return 1;
    }
    int64_t count = 0;
    std::size_t tensor = 0;
    for (const Argument& argument : call.arguments)
        if (argument.letter != 'i' && argument.letter != 'r') {
            const unsigned char* found = memory[tensor++].get();
            if (argument.given) count += compared(argument, found, largest);
        }
    return count;
}

int main(int argc, char** argv) {
    std::map<std::string, const evalgrad::Kernel*> kernels;
    for (const evalgrad::Kernel* kernel = evalgrad_kernels(); kernel->name; ++kernel) {
        const std::string types = kernel->types;  // the last letter is that of the threads
        kernels[kernel->name + (":" + types.substr(0, types.size() - 1))] = kernel;
    }
    std::ifstream file(argv[1], std::ios::binary);
    int64_t calls = 0, different = 0;
    double largest = 0;
    for (Call call; read_call(file, call);) {
        const auto found = kernels.find(call.name + ":" + call.types);
        if (found == kernels.end()) {
            std::printf("no kernel %s of types %s\n", call.name.c_str(), call.types.c_str());
            return 2;
        }
        for (int i = 2; i < argc; ++i, ++calls) {
            const int64_t count = replay(call, *found->second, std::atoll(argv[i]), largest);
            if (count && !different) std::printf("first difference: %s\n", call.name.c_str());
            different += count;
        }
    }
    std::printf("%lld calls, %lld numbers differ, by at most %.3g\n", static_cast<long long>(calls),
                static_cast<long long>(different), largest);
    return different ? 1 : 0;
}
