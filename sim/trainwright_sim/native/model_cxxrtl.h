// Design compiled by CXXRTL, with the interface of model.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "design.cc"

namespace trainwright {

class Model {
public:
    // Clock once. Inputs pass a register (wrapper.py), so only the clock makes work here.
    void clock() {
        top_.PORT_clk.set<bool>(true);
        top_.step();
        top_.PORT_clk.set<bool>(false);
        top_.step();
    }

    cxxrtl_design::p_simulated &ports() { return top_; }

private:
    cxxrtl_design::p_simulated top_;
};

// Access ports of CXXRTL: chunks of 32 bits, lowest first; buffered ports are wires of two values.
template <size_t Bits>
inline const uint32_t *chunks(const cxxrtl::value<Bits> &port) {
    return port.data;
}
template <size_t Bits>
inline const uint32_t *chunks(const cxxrtl::wire<Bits> &port) {
    return port.curr.data;
}
template <typename T>
inline uint32_t get(const T &port) {
    return chunks(port)[0];
}
template <size_t Bits>
inline void set(cxxrtl::value<Bits> &port, uint32_t value) {
    port.data[0] = value;
}
template <size_t N, typename T>
inline void get_bytes(const T &port, uint8_t *bytes) {
    static_assert(N <= sizeof(T));
    std::memcpy(bytes, chunks(port), N);
}
template <size_t N, size_t Bits>
inline void set_bytes(cxxrtl::value<Bits> &port, const uint8_t *bytes) {
    static_assert(N * 8 <= Bits);
    std::memcpy(port.data, bytes, N);
}

}  // namespace trainwright
