// The entry of PE1's step, in fixed point (trainwright_hw.compute.pe1.entry).
#pragma once

#include "leaf.h"

namespace leaf {

template <int Lanes, int WordBits, int ElementBits>
struct entry {
    uint32_t rst = 0, from_pad = 0;
    Word<WordBits> row[Lanes] = {}, word[Lanes] = {};
    uint8_t element[(Lanes * ElementBits + 7) / 8] = {};

    void comb() {}

    void clock() {
        if (from_pad) {
            std::memcpy(word, row, sizeof word);
        } else {
            for (int n = 0; n < Lanes; ++n) word[n] = lane<ElementBits, Word<WordBits>>(element, n);
        }
    }
};

}  // namespace leaf
