// Model of the loop nest of PE1 and PE2 (trainwright_hw.compute.loop_nest).
#pragma once

#include "isa.h"
#include "leaf.h"

namespace leaf {

template <int Levels, int Digits>
struct loop_nest {
    static constexpr int AddressBits = isa::COMPUTE_X_BASE_BITS, CountBits = isa::COMPUTE_COUNT_BITS;
    static constexpr int Bytes = (isa::COMPUTE_COMMAND_BITS + 7) / 8;
    uint32_t rst = 0, load = 0, step_ready = 0, free = 1, step_valid = 0;
    Bits command;
    uint8_t step_payload[(3 * AddressBits + 4 + (Digits > 0) + 7) / 8] = {};

    void comb() {}

    void clock() {
        const bool taken = step_valid && step_ready;
        const bool is_free = free, is_final = (holding_ ? held_ : step_).final;
        const bool advance = prime_ || (valid_ && !holding_);
        if (!holding_) held_ = step_;
        holding_ = step_valid && !step_ready;
        if (advance) step();
        if (is_free) {
            capture();
        } else {
            captured_ = false;
        }
        free = load ? 0 : taken && is_final ? 1 : free;
        prime_ = load;
        if (rst) *this = loop_nest(*this, held_);
        offer();
    }

    loop_nest() = default;

private:
    static constexpr uint32_t ALL = (uint32_t(1) << Levels) - 1;
    static constexpr uint32_t ADDRESS = (uint32_t(1) << AddressBits) - 1;
    struct Step {
        uint32_t address[3] = {};
        bool first = false, last = false, tile_last = false, final = false, digit = false;
    };
    struct Level {
        uint32_t top = 0, remaining = 0, delta[3] = {};
    };

    // Keep the skid buffer's contents over a reset, as the block does.
    loop_nest(const loop_nest &before, const Step &held) : command(before.command), held_(held) {
        load = before.load, step_ready = before.step_ready, rst = before.rst;
    }

    void step() {
        const bool was_final = step_.final;
        step_.first = ((starts_ | ~reductions_) & ALL) == ALL;
        step_.last = ((ends_ | ~reductions_) & ALL) == ALL;
        step_.tile_last = ((ends_ | ~tiles_) & ALL) == ALL;
        step_.final = ends_ == ALL;
        if constexpr (Digits == 2) {
            step_.digit = ((starts_ | ~insides_) & ALL) == ALL && (digits_ & ~starts_);
        } else if constexpr (Digits == 1) {
            step_.digit = ((starts_ | ~reductions_ | digits_) & ALL) == ALL && digits_;
        }
        if (!prime_) {
            for (int n = 0; n < 3; ++n) step_.address[n] = (step_.address[n] + delta_[n]) & ADDRESS;
        }
        valid_ = prime_ || !was_final;
        const uint32_t open = ~ends_ & ALL;
        const int at = open ? __builtin_ctz(open) : Levels;  // level that advances next
        for (int n = 0; n < at; ++n) {
            levels_[n].remaining = levels_[n].top;
            mark(n, levels_[n].top == 0, true);
        }
        if (open) {
            std::memcpy(delta_, levels_[at].delta, sizeof delta_);
            mark(at, levels_[at].remaining == 1, false);
            levels_[at].remaining = (levels_[at].remaining - 1) & ((1u << CountBits) - 1);
        }
    }

    void mark(int level, bool end, bool start) {
        ends_ = (ends_ & ~(1u << level)) | uint32_t(end) << level;
        starts_ = (starts_ & ~(1u << level)) | uint32_t(start) << level;
    }

    uint32_t field(int bit, int width) const {
        return uint32_t(bits_at(command.bytes, size_t(bit), width));
    }
#define FIELD(name) field(isa::COMPUTE_##name, isa::COMPUTE_##name##_BITS)
#define LEVEL_FIELD(name, level) \
    field(isa::COMPUTE_##name + (level) * isa::COMPUTE_LEVEL_STEP, isa::COMPUTE_##name##_BITS)

    // Output offered while the nest is free: constant while the command is.
    void capture() {
        if (captured_ && !std::memcmp(command.bytes, taken_, Bytes)) return;
        captured_ = true;
        std::memcpy(taken_, command.bytes, Bytes);
        const uint32_t reduce = FIELD(REDUCE_LEVELS), tile = FIELD(TILE_LEVEL);
        const bool by_digits = FIELD(DIGITS);
        const uint32_t left = Digits == 2 ? reduce - (by_digits && FIELD(UNDERFLOW_ZERO)) : reduce;
        reductions_ = tiles_ = digits_ = insides_ = 0;
        for (int n = 0; n < Levels; ++n) {
            const int level = isa::NEST_LEVELS - 1 - n;  // the innermost level is last
            const uint32_t count = LEVEL_FIELD(COUNT, level);
            levels_[n].top = levels_[n].remaining = (count - 1) & ((1u << CountBits) - 1);
            levels_[n].delta[0] = LEVEL_FIELD(X_DELTA, level);
            levels_[n].delta[1] = LEVEL_FIELD(G_DELTA, level);
            levels_[n].delta[2] = LEVEL_FIELD(Z_DELTA, level);
            mark(n, count == 1, true);
            reductions_ |= uint32_t(reduce > uint32_t(n)) << n;
            tiles_ |= uint32_t(tile == uint32_t(level)) << n;
            if (Digits) digits_ |= uint32_t(by_digits && left == uint32_t(n + 1)) << n;
            if (Digits == 2) insides_ |= uint32_t(int32_t(left) > n + 1) << n;
        }
        step_.address[0] = FIELD(X_BASE);
        step_.address[1] = FIELD(G_BASE);
        step_.address[2] = FIELD(Z_BASE);
    }
#undef FIELD
#undef LEVEL_FIELD

    void offer() {
        const Step &now = holding_ ? held_ : step_;
        step_valid = valid_ || holding_;
        unsigned __int128 bits = 0;
        for (int of = 0; of < 3; ++of) bits |= (unsigned __int128)now.address[of] << (of * AddressBits);
        const unsigned flags = now.first | now.last << 1 | now.tile_last << 2 | now.final << 3 | now.digit << 4;
        bits |= (unsigned __int128)flags << (3 * AddressBits);
        std::memcpy(step_payload, &bits, sizeof step_payload);
    }

    Level levels_[Levels];
    uint32_t ends_ = 0, starts_ = 0, reductions_ = 0, tiles_ = 0, digits_ = 0, insides_ = 0;
    uint32_t delta_[3] = {};
    Step step_, held_;
    bool prime_ = false, valid_ = false, holding_ = false, captured_ = false;
    uint8_t taken_[Bytes] = {};
};

}  // namespace leaf
