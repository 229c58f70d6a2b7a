// Model of PE2's array (trainwright_hw.compute.pe2.outer_array).
#pragma once

#include "leaf.h"

namespace leaf {

template <int Rows, int Lanes, int WordBits, int SumBits, int DigitBits>
struct outer_array {
    using Operand = Word<WordBits>;
    static constexpr int SUMMED = 2;  // stage in which lane 0 adds its product

    uint32_t rst = 0, valid = 0, last = 0, digit = 0, row = 0;
    Operand x_row[Lanes] = {}, g_row[Lanes] = {};
    int64_t value[Lanes] = {};

    void comb() {
        rows_.stage[0] = uint8_t(row);
        // unchanged unless an input changed since the last cycle
        const uint64_t chosen = hash_rows();
        if (!drained_ && chosen == chosen_) return;
        chosen_ = chosen;
        drained_ = false;
        for (int lane = 0; lane < Lanes; ++lane) value[lane] = drain_[rows_.stage[lane]][lane];
    }

    void clock() {
        const uint64_t valids = valids_ << 1 | valid, lasts = lasts_ << 1 | last;
        const uint64_t digits = digits_ << 1 | digit;
        const uint32_t adding = uint32_t(valids >> SUMMED) & ALL;
        const uint32_t next = uint32_t(valids >> (SUMMED - 1)) & ALL;
        if (adding | complete_) add(adding, uint32_t(digits >> SUMMED));
        complete_ = rst ? ALL : next & uint32_t(lasts >> (SUMMED - 1));
        if (next | rst) multiply();
        Operand late[Lanes];
        std::memcpy(late, x_row, sizeof late);
        skew_.step(late);
        std::memcpy(left_, late, sizeof left_);
        for (int r = 0; r < Rows; ++r) {
            std::memmove(right_[r] + 1, right_[r], (Lanes - 1) * sizeof(Operand));
            right_[r][0] = g_row[r];
        }
        rows_.shift();
        valids_ = valids, lasts_ = lasts, digits_ = digits;
        if (rst) valids_ = lasts_ = digits_ = 0;
    }

private:
    static constexpr uint32_t ALL = Lanes < 32 ? (uint32_t(1) << Lanes) - 1 : ~uint32_t(0);

    uint64_t hash_rows() const {
        uint64_t parts[(Lanes + 7) / 8] = {}, mixed = 0;
        std::memcpy(parts, rows_.stage, Lanes);
        for (uint64_t part : parts) mixed = mixed << 4 ^ part;  // a row number has at most four bits
        return mixed;
    }

    void add(uint32_t adding, uint32_t digits) {
        int64_t adds[Lanes], completes[Lanes];
        for (int lane = 0; lane < Lanes; ++lane) {
            adds[lane] = -int64_t(adding >> lane & 1);
            completes[lane] = -int64_t(complete_ >> lane & 1);
        }
        for (int r = 0; r < Rows; ++r) {
            for (int lane = 0; lane < Lanes; ++lane) {
                int64_t so_far = sum_[r][lane];
                if constexpr (DigitBits > 0) {
                    if (digits >> lane & 1) so_far = int64_t(uint64_t(so_far) << DigitBits);
                }
                const int64_t total = wrap<SumBits>(so_far + product_[r][lane]);
                drain_[r][lane] = completes[lane] ? total : drain_[r][lane];
                sum_[r][lane] = completes[lane] ? 0 : adds[lane] ? total : sum_[r][lane];
            }
        }
        drained_ |= complete_ != 0;
    }

    void multiply() {
        for (int r = 0; r < Rows; ++r) {
            for (int lane = 0; lane < Lanes; ++lane) {
                product_[r][lane] = int32_t(left_[lane]) * int32_t(right_[r][lane]);
            }
        }
    }

    static_assert(2 * WordBits <= 32 && SumBits <= 64 && Rows <= 16 && Lanes <= 16);
    uint64_t valids_ = 0, lasts_ = 0, digits_ = 0, chosen_ = 0;
    uint32_t complete_ = ALL;
    bool drained_ = true;
    Line<uint8_t, Lanes> rows_;
    Skew<Operand, Lanes> skew_;
    Operand left_[Lanes] = {}, right_[Rows][Lanes] = {};
    int32_t product_[Rows][Lanes] = {};
    int64_t sum_[Rows][Lanes] = {}, drain_[Rows][Lanes] = {};
};

}  // namespace leaf
