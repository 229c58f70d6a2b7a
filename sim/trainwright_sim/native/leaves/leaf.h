// Helpers for the C++ models of leaf blocks.
//
// A model has the block's inputs and outputs as members, an integer or an array each, and
//   comb():  outputs that depend on inputs of the same cycle, if there are any;
//   clock(): one clock edge, from the inputs that were set before it.
// Outputs equal the block's in every cycle, also without valid data and after a reset at any time.
// Registers begin as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace leaf {

// Read the lowest bits of a value as a signed integer.
template <int Bits, typename T>
inline T wrap(T value) {
    constexpr int rest = int(8 * sizeof(T)) - Bits;
    if constexpr (rest <= 0) {
        return value;
    } else {
        using Unsigned = std::make_unsigned_t<T>;
        return T(Unsigned(value) << rest) >> rest;
    }
}

// Unsigned integer type of the lanes that hold a word of this width.
template <int Bits>
using Word = std::conditional_t<(Bits <= 8), int8_t,
                                std::conditional_t<(Bits <= 16), int16_t,
                                                   std::conditional_t<(Bits <= 32), int32_t, int64_t>>>;

// A port is an integer, or 32 bits in each of an array, lowest first.
// Many bits that are looked at where they are.
struct Bits {
    const uint8_t *bytes = nullptr;
};

template <int Count, typename Port>
inline void load(Bits &to, const Port &port) {
    static_assert(size_t(Count) <= 8 * sizeof(Port));
    to.bytes = reinterpret_cast<const uint8_t *>(&port);
}

template <int Bits, typename Port>
inline void load(uint32_t &to, const Port &port) {
    static_assert(Bits <= 32);
    to = uint32_t(port);
}

inline uint64_t bits_at(const uint8_t *bytes, size_t bit, int bits) {
    uint64_t value = 0;
    const size_t first = bit / 8, count = (bit % 8 + bits + 7) / 8;
    unsigned __int128 wide = 0;
    std::memcpy(&wide, bytes + first, count);
    value = uint64_t(wide >> (bit % 8));
    return bits == 64 ? value : value & ((uint64_t(1) << bits) - 1);
}

// A lane of packed bytes, sign-extended unless it is of an unsigned type.
template <int Width, typename T>
inline T lane(const uint8_t *bytes, size_t n) {
    if constexpr (Width == 8 * sizeof(T)) {
        T value;
        std::memcpy(&value, bytes + n * sizeof(T), sizeof value);
        return value;
    } else if constexpr (Width == 4) {
        return wrap<4>(T(bytes[n / 2] >> 4 * (n % 2)));
    } else {
        return wrap<Width>(T(bits_at(bytes, n * Width, Width)));
    }
}

// Read the lanes of a packed port, sign-extended.
// Copy bytes unchanged.
template <int Bits, size_t N, typename Port>
inline void load(uint8_t (&to)[N], const Port &port) {
    static_assert((Bits + 7) / 8 == N && N <= sizeof(Port));
    std::memcpy(to, &port, N);
}

template <int Bits, typename T, size_t N, typename Port>
inline void load(T (&to)[N], const Port &port) {
    constexpr int width = Bits / int(N);
    static_assert(width * N == Bits && size_t(Bits) <= 8 * sizeof(Port));
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(&port);
    if constexpr (width == 8 * sizeof(T)) {
        std::memcpy(to, bytes, sizeof to);
    } else {
        for (size_t n = 0; n < N; ++n) to[n] = lane<width, T>(bytes, n);
    }
}

template <int Bits, typename Port>
inline void store(Port &port, uint32_t value) {
    port = Port(value);
}

template <int Bits, size_t N, typename Port>
inline void store(Port &port, const uint8_t (&from)[N]) {
    static_assert((Bits + 7) / 8 == N && N <= sizeof(Port));
    std::memcpy(&port, from, N);
}

template <int Bits, typename T, size_t N, typename Port>
inline void store(Port &port, const T (&from)[N]) {
    constexpr int width = Bits / int(N);
    static_assert(width * N == Bits && size_t(Bits) <= 8 * sizeof(Port));
    uint8_t *bytes = reinterpret_cast<uint8_t *>(&port);
    if constexpr (width == 8 * sizeof(T)) {
        std::memcpy(bytes, from, sizeof from);
    } else {
        unsigned __int128 held = 0;
        int count = 0;
        const uint64_t mask = width == 64 ? ~uint64_t(0) : (uint64_t(1) << (width % 64)) - 1;
        for (size_t n = 0; n < N; ++n) {
            held |= (unsigned __int128)(uint64_t(from[n]) & mask) << count;
            for (count += width; count >= 8; count -= 8, held >>= 8) *bytes++ = uint8_t(held);
        }
        if (count) *bytes = uint8_t(held);
    }
}

// Copy a port of one model to another, bit by bit.
inline void link(uint32_t &to, uint32_t from) { to = from; }

template <typename T, size_t N, typename U, size_t M>
inline void link(T (&to)[N], const U (&from)[M]) {
    static_assert(sizeof to == sizeof from);  // words, or their bytes
    std::memcpy(to, from, sizeof to);
}

// Copy up to 32 bits between a port kept as an integer and a port kept as bytes.
template <size_t N>
inline void link(uint32_t &to, const uint8_t (&from)[N]) {
    static_assert(N <= 4);
    to = 0;
    std::memcpy(&to, from, N);
}

template <size_t N>
inline void link(uint8_t (&to)[N], uint32_t from) {
    static_assert(N <= 4);
    std::memcpy(to, &from, N);
}

// Read a slice of another model's output.
template <int Lowest, int Width>
inline void link(uint32_t &to, uint32_t from) {
    static_assert(Width <= 32);
    to = uint32_t(from >> Lowest & ((uint64_t(1) << Width) - 1));
}

template <int Lowest, int Width, size_t N>
inline void link(uint32_t &to, const uint8_t (&from)[N]) {
    static_assert(Width <= 32 && (Lowest + Width + 7) / 8 <= N);
    to = uint32_t(bits_at(from, Lowest, Width));
}

template <int Lowest, int Width, size_t M, size_t N>
inline void link(uint8_t (&to)[M], const uint8_t (&from)[N]) {
    static_assert(Width <= 64 && (Width + 7) / 8 == M && (Lowest + Width + 7) / 8 <= N);
    const uint64_t bits = bits_at(from, Lowest, Width);
    std::memcpy(to, &bits, M);
}

// Delay word n by n cycles: one stage per bit of n.
template <typename T, int Lanes>
class Skew {
public:
    // Take a cycle's words and return word n of n cycles ago; both may be the same array.
    void step(T (&words)[Lanes]) {
        T *held = &held_[0][0];
        for (int delay = Lanes / 2; delay; delay /= 2) {
            T *oldest = held + (now_ & unsigned(delay - 1)) * Lanes;
            for (int lane = 0; lane < Lanes; ++lane) {
                const T late = oldest[lane];
                oldest[lane] = words[lane];
                words[lane] = lane & delay ? late : words[lane];
            }
            held += delay * Lanes;
        }
        ++now_;
    }

private:
    static_assert((Lanes & (Lanes - 1)) == 0);
    T held_[Lanes][Lanes] = {};
    unsigned now_ = 0;
};

// Line of integer registers; element 0 is the input.
template <typename T, int Stages>
struct Line {
    T stage[Stages] = {};
    void shift() { std::memmove(stage + 1, stage, sizeof stage - sizeof(T)); }
    void clear() { std::memset(stage, 0, sizeof stage); }
};

}  // namespace leaf
