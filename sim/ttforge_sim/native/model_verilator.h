// The design as Verilator compiled it. Engine-neutral side: see model.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "Vttforge.h"
#include "verilated.h"

namespace ttforge {

class Model {
public:
    Model() : top_(&context_, "top") {}
    ~Model() { top_.final(); }

    // Let the inputs take effect, the clock low: outputs are then those of the present cycle.
    void settle() {
        top_.clk = 0;
        top_.eval();
    }

    // The rising edge that ends the present cycle.
    void edge() {
        top_.clk = 1;
        top_.eval();
    }

    Vttforge &ports() { return top_; }

private:
    VerilatedContext context_;
    Vttforge top_;
};

// A port's bytes lie in memory in little-endian order, whatever its width.
template <typename T>
inline uint32_t get(const T &port) {
    return static_cast<uint32_t>(port);
}
template <typename T>
inline void set(T &port, uint32_t value) {
    port = static_cast<T>(value);
}
template <size_t N, typename T>
inline void get_bytes(const T &port, uint8_t *bytes) {
    static_assert(N <= sizeof(T));
    std::memcpy(bytes, &port, N);
}
template <size_t N, typename T>
inline void set_bytes(T &port, const uint8_t *bytes) {
    static_assert(N <= sizeof(T));
    std::memcpy(&port, bytes, N);
}

}  // namespace ttforge
