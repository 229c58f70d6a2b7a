// A factor store (trainwright_hw.storage.factor_store).
#pragma once

#include "leaf.h"

namespace leaf {

template <int Depth, int EntryBits>
struct factor_store {
    static constexpr int BYTES = EntryBits / 8;

    uint32_t rst = 0, write_valid = 0, write_address = 0, read_enable = 0, read_address = 0;
    uint8_t write_entry[BYTES] = {}, read_entry[BYTES] = {};

    void comb() {}

    void clock() {
        std::memcpy(read_entry, data_, sizeof data_);
        if (read_enable) std::memcpy(data_, memory_[read_address % Depth], sizeof data_);
        if (write_valid) std::memcpy(memory_[write_address % Depth], write_entry, sizeof data_);
    }

private:
    static_assert(EntryBits % 8 == 0);
    uint8_t data_[BYTES] = {}, memory_[Depth][BYTES] = {};
};

}  // namespace leaf
