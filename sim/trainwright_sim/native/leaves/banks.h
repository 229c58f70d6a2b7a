// Model of the scratchpad's banks (trainwright_hw.storage.banks).
#pragma once

#include "leaf.h"

namespace leaf {

// Up to eight readers and four writers.
template <int Count, int Depth, int RowBits, int Readers, int Writers>
struct banks {
    static constexpr int BYTES = RowBits / 8;
    struct Row {
        uint8_t bytes[BYTES];
    };

    uint32_t rst = 0;
    uint32_t granted[Count] = {}, read[Count] = {}, read_place[Count] = {};
    uint32_t write_place0 = 0, write_place1 = 0, write_place2 = 0, write_place3 = 0;
    uint8_t write_row0[BYTES] = {}, write_row1[BYTES] = {}, write_row2[BYTES] = {}, write_row3[BYTES] = {};
    uint32_t source0 = 0, source1 = 0, source2 = 0, source3 = 0;
    uint32_t source4 = 0, source5 = 0, source6 = 0, source7 = 0;
    uint8_t row0[BYTES] = {}, row1[BYTES] = {}, row2[BYTES] = {}, row3[BYTES] = {};
    uint8_t row4[BYTES] = {}, row5[BYTES] = {}, row6[BYTES] = {}, row7[BYTES] = {};

    void comb() {}

    void clock() {
        const uint32_t source[8] = {source0, source1, source2, source3,
                                    source4, source5, source6, source7};
        uint8_t *const row[8] = {row0, row1, row2, row3, row4, row5, row6, row7};
        for (int n = 0; n < Readers; ++n) std::memcpy(row[n], given_[source[n] % Count], BYTES);
        const uint32_t place[4] = {write_place0, write_place1, write_place2, write_place3};
        const uint8_t *const written[4] = {write_row0, write_row1, write_row2, write_row3};
        for (int bank = 0; bank < Count; ++bank) {
            std::memcpy(given_[bank], data_[bank], BYTES);
            if (read[bank]) std::memcpy(data_[bank], memory_[bank][read_place[bank] % Depth].bytes, BYTES);
            if (enabled_ >> bank & 1) {
                std::memcpy(memory_[bank][address_[bank]].bytes, arriving_[bank], BYTES);
            }
            const uint32_t grant = granted[bank];
            enabled_ = (enabled_ & ~(1u << bank)) | uint32_t(grant != 0) << bank;
            if (grant) {
                const int of = __builtin_ctz(grant) % Writers;
                address_[bank] = place[of] % Depth;
                std::memcpy(arriving_[bank], written[of], BYTES);
            }
        }
        if (rst) enabled_ = 0;
    }

private:
    static_assert(Readers <= 8 && Writers <= 4 && RowBits % 8 == 0);
    uint32_t enabled_ = 0, address_[Count] = {};
    uint8_t arriving_[Count][BYTES] = {}, data_[Count][BYTES] = {}, given_[Count][BYTES] = {};
    Row memory_[Count][Depth] = {};
};

}  // namespace leaf
