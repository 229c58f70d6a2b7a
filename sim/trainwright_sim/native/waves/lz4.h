// The part of LZ4 that Verilator's FST writer calls: blocks of the LZ4 format, by a greedy search
// with one table of hashes. No wheel brings lz4's headers.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

namespace lz4 {

constexpr int SHORTEST = 4;        // bytes of a match
constexpr int LITERALS_AT_END = 5; // the last bytes are literals,
constexpr int MATCH_LIMIT = 12;    // and no match begins in this many bytes before the end
constexpr int FARTHEST = 65535;
constexpr int HASH_BITS = 14;

inline uint32_t four(const uint8_t *at) {
    uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Bytes of a length after its four bits of a token are full.
inline void put_length(uint8_t *&out, int rest) {
    for (; rest >= 255; rest -= 255) *out++ = 255;
    *out++ = uint8_t(rest);
}

inline void put(uint8_t *&out, const uint8_t *literals, int count, int distance, int match) {
    const int extra = match - SHORTEST;
    const int upper = count < 15 ? count : 15, lower = distance ? (extra < 15 ? extra : 15) : 0;
    *out++ = uint8_t(upper << 4 | lower);
    if (upper == 15) put_length(out, count - 15);
    std::memcpy(out, literals, size_t(count));
    out += count;
    if (!distance) return;
    *out++ = uint8_t(distance);
    *out++ = uint8_t(distance >> 8);
    if (lower == 15) put_length(out, extra - 15);
}

}  // namespace lz4

inline int LZ4_compress_default(const char *from, char *to, int size, int) {
    using namespace lz4;
    const auto *in = reinterpret_cast<const uint8_t *>(from);
    auto *const begin = reinterpret_cast<uint8_t *>(to), *out = begin;
    std::vector<int> seen(1 << HASH_BITS, -1);
    int at = 0, literals = 0;
    while (at < size - MATCH_LIMIT) {
        int &slot = seen[four(in + at) * 2654435761u >> (32 - HASH_BITS)];
        const int match = slot;
        slot = at;
        if (match < 0 || at - match > FARTHEST || four(in + match) != four(in + at)) {
            ++at;
            continue;
        }
        int length = SHORTEST;
        while (at + length < size - LITERALS_AT_END && in[match + length] == in[at + length]) ++length;
        put(out, in + literals, at - literals, at - match, length);
        literals = at += length;
    }
    put(out, in + literals, size - literals, 0, SHORTEST);
    return int(out - begin);
}
