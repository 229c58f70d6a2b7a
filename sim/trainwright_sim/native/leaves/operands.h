// Model of the operands of PE2's step, in fixed point (trainwright_hw.compute.pe2.operands).
#pragma once

#include "leaf.h"

namespace leaf {

template <int Rows, int Lanes, int WordBits>
struct operands {
    using Operand = Word<WordBits>;

    uint32_t rst = 0, by_group = 0, group = 0;
    Operand x[Lanes] = {}, g[Lanes] = {}, x_operand[Lanes] = {}, g_operand[Lanes] = {};

    void comb() {}

    void clock() {
        std::memcpy(x_operand, x, sizeof x);
        std::memcpy(g_operand, g, sizeof g);
        if (by_group) std::memcpy(g_operand, g + group % (Lanes / Rows) * Rows, Rows * sizeof(Operand));
    }
};

}  // namespace leaf
