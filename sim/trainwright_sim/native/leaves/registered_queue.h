// Model of a queue with registered outputs (trainwright_hw.stream.registered_queue).
#pragma once

#include "leaf.h"

namespace leaf {

// Flags bits of the oldest word are 0 while the queue is empty.
template <int Width, int Depth, int Counted, int Flags>
struct registered_queue {
    static constexpr int BYTES = (Width + 7) / 8;

    uint32_t rst = 0, w_en = 0, r_en = 0, w_rdy = 1, r_rdy = 0, level = 0;
    uint8_t w_data[BYTES] = {}, r_data[BYTES] = {};

    void comb() {}

    void clock() {
        const bool write = w_en && (Counted || w_rdy), read = r_en && r_rdy, empty = !r_rdy;
        if (read || empty) {
            std::memcpy(r_data, more_ ? storage_[consume_] : w_data, BYTES);
            r_rdy = more_ || write;
            if (Flags && !r_rdy) clear_flags();
        }
        if (write) {
            std::memcpy(storage_[produce_], w_data, BYTES);
            const bool pass_by = !more_ && (read || empty);
            if (!pass_by) produce_ = produce_ == Depth - 1 ? 0 : produce_ + 1;
        }
        if (read && more_) consume_ = consume_ == Depth - 1 ? 0 : consume_ + 1;
        const uint32_t was = level;
        constexpr uint32_t mask = (2u << (31 - __builtin_clz(Depth))) - 1;
        if (write && !read) level = (was + 1) & mask, w_rdy = was != Depth - 1, more_ = was != 0;
        if (read && !write) level = (was - 1) & mask, w_rdy = 1, more_ = was > 2;
        if (rst) {
            produce_ = consume_ = level = r_rdy = 0;
            w_rdy = 1;
            more_ = false;
            clear_flags();
        }
    }

private:
    static_assert(Depth >= 2 && Flags <= 8);
    void clear_flags() { r_data[0] &= uint8_t(0xff << Flags); }

    uint8_t storage_[Depth][BYTES] = {};
    uint32_t produce_ = 0, consume_ = 0;
    bool more_ = false;
};

}  // namespace leaf
