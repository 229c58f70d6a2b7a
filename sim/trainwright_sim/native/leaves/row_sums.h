// Model of the counters of a row of results, in fixed point (trainwright_hw.writeback.row_sums).
#pragma once

#include "leaf.h"

namespace leaf {

template <int Lanes, int WordBits>
struct row_sums {
    uint32_t rst = 0, saturated = 0, sum = 0, saturations = 0;
    Word<WordBits> word[Lanes] = {};

    void comb() {}

    void clock() {
        sum = rst ? 0 : sums_[1];
        saturations = rst ? 0 : counts_[1];
        sums_[1] = sums_[0];
        counts_[1] = counts_[0];
        uint32_t total = 0;
        for (int lane = 0; lane < Lanes; ++lane) {
            const int32_t one = word[lane];
            total += uint32_t(one < 0 ? -one : one);
        }
        sums_[0] = total;
        counts_[0] = uint32_t(__builtin_popcount(saturated));
    }

private:
    static_assert(WordBits <= 16 && Lanes <= 16);
    uint32_t sums_[2] = {}, counts_[2] = {};
};

}  // namespace leaf
