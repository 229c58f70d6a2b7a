// Model of PE1's array (trainwright_hw.compute.pe1.dot_array).
#pragma once

#include "leaf.h"

namespace leaf {

template <int Rows, int Lanes, int WordBits, int SumBits, int DigitBits>
struct dot_array {
    using Operand = Word<WordBits>;
    static constexpr int DOTTED = 3;  // stage in which row 0 reads its accumulator
    static constexpr int STAGES = DOTTED + 1 + Rows;

    uint32_t rst = 0, load = 0, load_row = 0, swap = 0, valid = 0, number = 0, first = 0, digit = 0;
    Operand row[Lanes] = {}, entry[Lanes] = {};
    int64_t value[Rows] = {};

    void comb() {}

    void clock() {
        // bit n of a line: its value n cycles ago
        const uint32_t valids = valids_ << 1 | valid, firsts = firsts_ << 1 | first;
        const uint32_t digits = digits_ << 1 | digit;
        const uint32_t loads = loads_ << 1 | load, swaps = swaps_ << 1 | swap;
        numbers_.stage[0] = uint8_t(number);
        load_rows_.stage[0] = uint8_t(load_row);
        if (resting(valids | loads | swaps)) return;
        sum(valids, firsts, digits);
        std::memcpy(entries_[0], entry, sizeof entry);
        std::memcpy(passed_[0], row, sizeof row);
        multiply();
        for (int r = 0; r < Rows; ++r) {
            if (swaps >> r & 1) std::memcpy(left_[r], shadow_[r], sizeof left_[r]);
        }
        for (int r = 0; r < Rows; ++r) {
            if ((loads >> r & 1) && load_rows_.stage[r] == r) {
                std::memcpy(shadow_[r], passed_[r], sizeof shadow_[r]);
            }
        }
        std::memmove(entries_[1], entries_[0], sizeof entries_ - sizeof entries_[0]);
        std::memmove(passed_[1], passed_[0], sizeof passed_ - sizeof passed_[0]);
        numbers_.shift();
        load_rows_.shift();
        valids_ = valids, firsts_ = firsts, digits_ = digits, loads_ = loads, swaps_ = swaps;
        if (rst) {
            valids_ = firsts_ = digits_ = loads_ = swaps_ = 0;
            numbers_.clear();
            std::memset(value, 0, sizeof value);
        }
    }

private:
    // Return whether this cycle changes nothing: inputs were constant for longer than a value stays.
    bool resting(uint32_t moving) {
        constexpr uint32_t mask = STAGES < 32 ? (uint32_t(1) << STAGES) - 1 : ~uint32_t(0);
        const uint32_t flags = first | digit << 1 | number << 2 | load_row << 8 | rst << 16;
        const bool same = !(moving & mask) && flags == flags_ &&
                          !std::memcmp(entry, entries_[0], sizeof entry) &&
                          !std::memcmp(row, passed_[0], sizeof row);
        flags_ = flags;
        same_ = same ? same_ + (same_ <= STAGES + 4) : 0;
        return same_ > STAGES + 4;
    }

    // Accumulators: each row is a stage behind the row before.
    void sum(uint32_t valids, uint32_t firsts, uint32_t digits) {
        for (int r = 0; r < Rows; ++r) {
            const int at = DOTTED + r;
            const int64_t total = wrap<SumBits>(accumulator_[r] + dot_[r]);
            int64_t so_far = sums_[r][numbers_.stage[at]];
            if constexpr (DigitBits > 0) {
                if (digits >> at & 1) so_far = int64_t(uint64_t(so_far) << DigitBits);
            }
            accumulator_[r] = firsts >> at & 1 ? 0 : so_far;
            value[r] = total;
            if (valids >> (at + 1) & 1) sums_[r][numbers_.stage[at + 1]] = total;
        }
    }

    // Products, sums of four, sums of a row: three registers without enable.
    void multiply() {
        for (int r = 0; r < Rows; ++r) {
            dot_[r] = late_[1][r];
            late_[1][r] = late_[0][r];
            int64_t total = 0;
            for (int lane = 0; lane < Lanes; ++lane) {
                total += int64_t(int32_t(left_[r][lane]) * int32_t(entries_[r + 1][lane]));
            }
            late_[0][r] = total;
        }
    }

    static_assert(2 * WordBits <= 32 && SumBits <= 64 && STAGES <= 32);
    uint32_t valids_ = 0, firsts_ = 0, digits_ = 0, loads_ = 0, swaps_ = 0, flags_ = 0;
    int same_ = 0;
    Line<uint8_t, STAGES> numbers_;
    Line<uint8_t, Rows> load_rows_;
    Operand entries_[Rows + 1][Lanes] = {};  // index r + 1: multiplier registers of row r
    Operand passed_[Rows][Lanes] = {}, shadow_[Rows][Lanes] = {}, left_[Rows][Lanes] = {};
    int64_t late_[2][Rows] = {}, dot_[Rows] = {}, accumulator_[Rows] = {};
    int64_t sums_[Rows][Lanes] = {};
};

}  // namespace leaf
