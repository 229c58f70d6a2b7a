// Model of PE2's element-wise operations (trainwright_hw.compute.pe2.vector).
#pragma once

#include "leaf.h"

namespace leaf {

// Works on whole words. Computes all lanes of a pair of rows when lane 0 is due, from the inputs
// of that cycle; lane n gives its value n cycles later.
template <int Lanes, int WordBits, int ValueBits, int FactorBits, int Bias, int Mask>
struct vector_unit {
    using Operand = Word<WordBits>;
    static constexpr int PRODUCT = 2;

    uint32_t rst = 0, valid = 0, context = 0, configure = 0, configure_context = 0;
    uint32_t operation = 0, relu = 0, x_shift = 0, g_shift = 0;
    Operand x_row[Lanes] = {}, g_row[Lanes] = {};
    int64_t value[Lanes] = {};

    void comb() {}

    void clock() {
        const uint64_t valids = valids_ << 1 | valid;
        contexts_.stage[0] = context;
        Pair &now = pairs_[now_ % 4];
        std::memcpy(now.x, x_row, sizeof now.x);
        std::memcpy(now.g, g_row, sizeof now.g);
        now.x_factor = x_factor_[context];
        now.g_factor = g_factor_[context];
        if (valids >> PRODUCT & 1) compute(pairs_[(now_ - PRODUCT) % 4]);
        give(uint32_t(valids >> PRODUCT) & ALL);
        for (int n = 0; n < 2; ++n) {
            x_factor_[n] = wrap<FactorBits>(int64_t(1) << (mask_[n] ? 0 : x_shift_[n]));
            g_factor_[n] = mask_[n] ? 0 : wrap<FactorBits>(int64_t(1) << g_shift_[n]);
        }
        if (configure) {
            const uint32_t n = configure_context;
            mask_[n] = operation == Mask;
            rectify_[n] = relu && operation != Mask;
            x_shift_[n] = x_shift, g_shift_[n] = g_shift;
        }
        contexts_.shift();
        valids_ = valids;
        ++now_;
        if (rst) {
            valids_ = 0;
            std::memset(value, 0, sizeof value);
            for (int n = 0; n < 2; ++n) mask_[n] = rectify_[n] = x_shift_[n] = g_shift_[n] = 0;
        }
    }

private:
    static constexpr uint32_t ALL = Lanes < 32 ? (uint32_t(1) << Lanes) - 1 : ~uint32_t(0);
    struct Pair {
        Operand x[Lanes], g[Lanes];
        int64_t x_factor, g_factor;
    };

    void compute(const Pair &pair) {
        const uint32_t of = contexts_.stage[PRODUCT];
        const bool rectify = rectify_[of], mask = mask_[of];
        int64_t *row = rows_[now_ % Lanes];
        for (int lane = 0; lane < Lanes; ++lane) {
            const int64_t total = wrap<ValueBits>(pair.x[lane] * pair.x_factor + pair.g[lane] * pair.g_factor);
            const bool zero = (rectify && total < 0) || (mask && pair.g[lane] <= 0);
            row[lane] = zero ? 0 : total;
        }
    }

    void give(uint32_t complete) {
        if (complete | given_) std::memset(value, 0, sizeof value);
        for (uint32_t left = complete; left; left &= left - 1) {
            const int lane = __builtin_ctz(left);
            value[lane] = rows_[(now_ - lane) % Lanes][lane];
        }
        given_ = complete;
    }

    static_assert((Lanes & (Lanes - 1)) == 0 && FactorBits + WordBits < 63);
    uint64_t valids_ = 0;
    uint32_t now_ = 0, given_ = 0;
    Line<uint32_t, PRODUCT + 1> contexts_;
    uint32_t mask_[2] = {}, rectify_[2] = {}, x_shift_[2] = {}, g_shift_[2] = {};
    int64_t x_factor_[2] = {}, g_factor_[2] = {};
    Pair pairs_[4] = {};
    int64_t rows_[Lanes][Lanes] = {};
};

}  // namespace leaf
