// Model of PE2's path to the write-back unit (trainwright_hw.compute.pe2.drain).
#pragma once

#include "leaf.h"

namespace leaf {

template <int Lanes>
struct drain {
    uint32_t rst = 0, due = 0;
    int64_t sum[Lanes] = {}, elementwise[Lanes] = {}, value[Lanes] = {};

    void comb() {
        const uint32_t drained = dues_ << 1 | due;
        std::memcpy(value, elementwise, sizeof value);
        for (int lane = 0; lane < Lanes; ++lane) {
            value[lane] |= sum[lane] & -int64_t(drained >> lane & 1);
        }
    }

    void clock() { dues_ = rst ? 0 : dues_ << 1 | due; }

private:
    static_assert(Lanes <= 32);
    uint32_t dues_ = 0;
};

}  // namespace leaf
