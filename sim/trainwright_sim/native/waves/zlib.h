// The part of zlib that Verilator's FST writer calls. Blocks are stored, not compressed: they hold
// first values and widths of signals, a small share of a file, and no wheel brings zlib's headers.
#pragma once

#include <cstdint>
#include <cstring>

using Bytef = unsigned char;
using uLong = unsigned long;
using uLongf = unsigned long;
constexpr int Z_OK = 0;
constexpr uLong ZLIB_MOST_STORED = 65535;  // bytes of a stored block

inline uLong compressBound(uLong size) { return size + 5 * (size / ZLIB_MOST_STORED + 1) + 6; }

inline int compress2(Bytef *to, uLongf *written, const Bytef *from, uLong size, int) {
    Bytef *out = to;
    *out++ = 0x78;  // deflate with a window of 32 KiB, fastest level (RFC 1950)
    *out++ = 0x01;
    uint32_t low = 1, high = 0;  // Adler-32
    uLong at = 0;
    do {
        const uLong length = size - at < ZLIB_MOST_STORED ? size - at : ZLIB_MOST_STORED;
        *out++ = at + length == size;  // last block, stored (RFC 1951)
        for (uLong field : {length, ~length}) {
            *out++ = Bytef(field);
            *out++ = Bytef(field >> 8);
        }
        std::memcpy(out, from + at, length);
        out += length;
        for (uLong end = at + length; at < end; ++at) {
            low = (low + from[at]) % 65521;
            high = (high + low) % 65521;
        }
    } while (at < size);
    for (int shift : {8, 0}) *out++ = Bytef(high >> shift);
    for (int shift : {8, 0}) *out++ = Bytef(low >> shift);
    *written = uLongf(out - to);
    return Z_OK;
}
