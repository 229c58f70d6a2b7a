// Model of the write-back unit's lanes, in fixed point (trainwright_hw.writeback.lanes).
#pragma once

#include "leaf.h"

namespace leaf {

// Encodes all lanes of a row at once, with the row's settings, when its last value arrives.
template <int Rows, int Lanes, int ValueBits, int WordBits>
struct encoded_lanes {
    using Result = Word<WordBits>;

    uint32_t rst = 0, of_column = 0, number = 0, shift = 0, out_width = 0;
    int64_t column[Rows] = {}, row[Lanes] = {};
    Result word[Lanes] = {};
    uint32_t saturated = 0;

    void comb() {}

    void clock() {
        const uint32_t columns = columns_ << 1 | of_column;
        numbers_.stage[0] = uint8_t(number);
        shifts_[now_ % HELD] = uint8_t(shift);
        widths_[now_ % HELD] = uint8_t(out_width);
        const unsigned late = now_ % 2;  // a row stays for two more cycles
        std::memcpy(word, words_[late], sizeof word);
        saturated = flags_[late];
        if (quiet_ < Lanes) {
            int64_t values[Lanes];
            for (int lane = 0; lane < Lanes; ++lane) values[lane] = value_[Lanes - 1 - lane];
            skew_.step(values);  // delays: last lane 0 cycles, first lane Lanes - 1
            encode(values, shifts_[(now_ - Lanes) % HELD], widths_[(now_ - Lanes) % HELD], late);
        } else {
            std::memset(words_[late], 0, sizeof words_[late]);
            flags_[late] = 0;
        }
        take(columns & ALL);
        numbers_.shift();
        columns_ = columns;
        ++now_;
    }

private:
    static constexpr uint32_t ALL = Lanes < 32 ? (uint32_t(1) << Lanes) - 1 : ~uint32_t(0);
    static constexpr int UNDER = WordBits, HELD = 2 * Lanes;

    void take(uint32_t columns) {
        std::memcpy(value_, row, sizeof value_);
        for (uint32_t left = columns; left; left &= left - 1) {
            const int lane = __builtin_ctz(left);
            value_[lane] |= column[numbers_.stage[lane] % Rows];
        }
        int64_t any = 0;
        for (int lane = 0; lane < Lanes; ++lane) any |= value_[lane];
        // Zeros give zeros, whatever the settings: after a row's cycles of zeros nothing else is left.
        quiet_ = any ? 0 : quiet_ + (quiet_ < Lanes);
    }

    // Round as trainwright_hw.arith.requantiser; `values` begin with the last lane.
    void encode(const int64_t (&values)[Lanes], unsigned by, unsigned width, unsigned place) {
        constexpr uint64_t whole = ValueBits < 64 ? (uint64_t(1) << (ValueBits % 64)) - 1 : ~uint64_t(0);
        const uint64_t under = by > 1 ? (uint64_t(1) << (by - 1)) - 1 : 0;
        const int64_t sticky_mask = int64_t(under & whole);
        const int64_t beyond_mask = UNDER + by < 64 ? int64_t(whole & (~uint64_t(0) << (UNDER + by))) : 0;
        const unsigned kept = width < WordBits ? width : WordBits;
        const int64_t greatest = kept ? (int64_t(1) << (kept - 1)) - 1 : 0;
        Result *to = words_[place];
        uint32_t flags = 0;
        int64_t over[Lanes];
        for (int n = 0; n < Lanes; ++n) {
            const int64_t value = values[n], sign = value >> 63;
            const int64_t floor = value >> by;
            const int64_t half = by ? value >> (by - 1) & 1 : 0;
            const int64_t rest = ((value & sticky_mask) != 0) | (floor & 1);
            const int64_t rounded = wrap<WordBits + 1>(floor) + (half & rest);
            const bool beyond = ((value ^ sign) & beyond_mask) != 0;
            const int64_t rounded_sign = rounded >> 63;
            const bool outside = beyond | (((rounded ^ rounded_sign) & ((int64_t(1) << (WordBits + 1)) - 1)) > greatest);
            const int64_t negative = beyond ? sign : rounded_sign;
            to[Lanes - 1 - n] = Result(outside ? greatest ^ negative : rounded);
            over[n] = outside;
        }
        for (int n = 0; n < Lanes; ++n) flags |= uint32_t(over[n]) << (Lanes - 1 - n);
        flags_[place] = flags;
    }

    static_assert(Lanes <= 16 && (Rows & (Rows - 1)) == 0);
    uint32_t columns_ = 0, now_ = 0;
    int quiet_ = 0;
    Line<uint8_t, Lanes> numbers_;
    uint8_t shifts_[HELD] = {}, widths_[HELD] = {};
    int64_t value_[Lanes] = {};
    Skew<int64_t, Lanes> skew_;
    Result words_[2][Lanes] = {};
    uint32_t flags_[2] = {};
};

}  // namespace leaf
