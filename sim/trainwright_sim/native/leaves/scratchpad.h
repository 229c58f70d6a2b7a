// Model of the scratchpad (trainwright_hw.storage.scratchpad): the banks and their arbiter.
#pragma once

#include "banks.h"

namespace leaf {

template <int Count, int Depth, int RowBits, int Readers, int Writers, int Latency>
struct scratchpad : banks<Count, Depth, RowBits, Readers, Writers> {
    using Base = banks<Count, Depth, RowBits, Readers, Writers>;

    uint32_t read_valid0 = 0, read_valid1 = 0, read_valid2 = 0, read_valid3 = 0;
    uint32_t read_valid4 = 0, read_valid5 = 0, read_valid6 = 0, read_valid7 = 0;
    uint32_t read_address0 = 0, read_address1 = 0, read_address2 = 0, read_address3 = 0;
    uint32_t read_address4 = 0, read_address5 = 0, read_address6 = 0, read_address7 = 0;
    uint32_t write_banks0 = 0, write_banks1 = 0, write_banks2 = 0, write_banks3 = 0;
    uint32_t write_address0 = 0, write_address1 = 0, write_address2 = 0, write_address3 = 0;
    uint32_t read_ready0 = 0, read_ready1 = 0, read_ready2 = 0, read_ready3 = 0;
    uint32_t read_ready4 = 0, read_ready5 = 0, read_ready6 = 0, read_ready7 = 0;
    uint32_t row_valid0 = 0, row_valid1 = 0, row_valid2 = 0, row_valid3 = 0;
    uint32_t row_valid4 = 0, row_valid5 = 0, row_valid6 = 0, row_valid7 = 0;
    uint32_t write_ready0 = 0, write_ready1 = 0, write_ready2 = 0, write_ready3 = 0;

    // Compute the grants of this cycle.
    void comb() {
        const uint32_t valid[8] = {read_valid0, read_valid1, read_valid2, read_valid3,
                                   read_valid4, read_valid5, read_valid6, read_valid7};
        const uint32_t address[8] = {read_address0, read_address1, read_address2, read_address3,
                                     read_address4, read_address5, read_address6, read_address7};
        const uint32_t asked[4] = {write_banks0, write_banks1, write_banks2, write_banks3};
        uint32_t reads[Count] = {}, writes[Count] = {}, readers = 0, writers = 0;
        for (int n = 0; n < Readers; ++n) reads[address[n] / Depth % Count] |= (valid[n] & 1) << n;
        for (int n = 0; n < Writers; ++n) {
            for (int bank = 0; bank < Count; ++bank) writes[bank] |= (asked[n] >> bank & 1) << n;
        }
        for (int bank = 0; bank < Count; ++bank) {
            readers |= read_grant_[bank] = next(reads[bank], last_read_[bank]);
            writers |= write_grant_[bank] = next(writes[bank], last_write_[bank]);
        }
        readers_ = readers;
        uint32_t *const ready[8] = {&read_ready0, &read_ready1, &read_ready2, &read_ready3,
                                    &read_ready4, &read_ready5, &read_ready6, &read_ready7};
        uint32_t *const taken[4] = {&write_ready0, &write_ready1, &write_ready2, &write_ready3};
        for (int n = 0; n < Readers; ++n) *ready[n] = readers >> n & 1;
        for (int n = 0; n < Writers; ++n) *taken[n] = writers >> n & 1;
    }

    void clock() {
        Base::clock();
        const uint32_t address[8] = {read_address0, read_address1, read_address2, read_address3,
                                     read_address4, read_address5, read_address6, read_address7};
        for (int bank = 0; bank < Count; ++bank) {
            const uint32_t read = read_grant_[bank], write = write_grant_[bank];
            this->read[bank] = read != 0;
            this->read_place[bank] = read ? address[__builtin_ctz(read)] % Depth : 0;
            this->granted[bank] = write;
            last_read_[bank] = read ? __builtin_ctz(read) : last_read_[bank];
            last_write_[bank] = write ? __builtin_ctz(write) : last_write_[bank];
        }
        this->write_place0 = write_address0 % Depth, this->write_place1 = write_address1 % Depth;
        this->write_place2 = write_address2 % Depth, this->write_place3 = write_address3 % Depth;
        pass(address);
        if (this->rst) reset();
    }

private:
    static constexpr int STAGES = Latency - 1;

    // Return the next request after the last granted one, round robin.
    static uint32_t next(uint32_t requests, uint32_t last) {
        const uint32_t later = requests & (~uint32_t(1) << last);
        const uint32_t of = later ? later : requests;
        return of & (0 - of);
    }

    // Pipeline of grants and banks on their way to the rows.
    void pass(const uint32_t (&address)[8]) {
        uint32_t *const source[8] = {&this->source0, &this->source1, &this->source2, &this->source3,
                                     &this->source4, &this->source5, &this->source6, &this->source7};
        uint32_t *const valid[8] = {&row_valid0, &row_valid1, &row_valid2, &row_valid3,
                                    &row_valid4, &row_valid5, &row_valid6, &row_valid7};
        for (int n = 0; n < Readers; ++n) {
            *valid[n] = granted_[STAGES - 1] >> n & 1;
            *source[n] = sources_[STAGES - 2][n];
            for (int stage = STAGES - 2; stage > 0; --stage) sources_[stage][n] = sources_[stage - 1][n];
            sources_[0][n] = address[n] / Depth % Count;
        }
        for (int stage = STAGES - 1; stage > 0; --stage) granted_[stage] = granted_[stage - 1];
        granted_[0] = readers_;
    }

    void reset() {
        for (int bank = 0; bank < Count; ++bank) {
            this->read[bank] = this->granted[bank] = 0;
            last_read_[bank] = Readers - 1, last_write_[bank] = Writers - 1;
        }
        std::memset(granted_, 0, sizeof granted_);
        row_valid0 = row_valid1 = row_valid2 = row_valid3 = 0;
        row_valid4 = row_valid5 = row_valid6 = row_valid7 = 0;
    }

    static_assert(Latency >= 3);
    uint32_t read_grant_[Count] = {}, write_grant_[Count] = {}, readers_ = 0;
    uint32_t granted_[STAGES] = {}, sources_[STAGES - 1][Readers] = {};
    uint32_t last_read_[Count], last_write_[Count];

public:
    scratchpad() {
        for (int bank = 0; bank < Count; ++bank) {
            last_read_[bank] = Readers - 1, last_write_[bank] = Writers - 1;
        }
    }
};

}  // namespace leaf
