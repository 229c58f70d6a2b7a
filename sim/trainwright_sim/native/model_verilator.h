// Design compiled by Verilator, with the interface of model.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "Vsimulated.h"
#include "verilated.h"
#if defined(ENGINE_LEAVES)
#include "leaves.h"
#endif

namespace trainwright {

class Model {
public:
    Model() : top_(&context_, "top") {}
    ~Model() { top_.final(); }

    // Clock once. Inputs pass a register (wrapper.py), so only the clock makes work here.
    void clock() {
#if defined(ENGINE_LEAVES)
        if (begun_) {
            leaves_.clock(top_);
            top_.clk = !top_.clk;  // every change of clk is an edge
        }
        begun_ = true;  // the first evaluation sees no edge, whatever clk is
        top_.eval();
#else
        top_.clk = 1;
        top_.eval();
        top_.clk = 0;
        top_.eval();
#endif
    }

    Vsimulated &ports() { return top_; }

private:
    VerilatedContext context_;
    Vsimulated top_;
#if defined(ENGINE_LEAVES)
    Leaves leaves_;
    bool begun_ = false;
#endif
};

// Access a port's bytes, which are in little-endian order, whatever its width.
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

}  // namespace trainwright
