// External memory behind an AXI4 port: timing, contents, and a check of the protocol.
//
// Ordering is as weak as AXI4 allows, so that a design that works here works on real memory: a read burst
// sees the memory as it was when its address was taken, and a write burst is in the memory when
// its response is given. Bursts of one direction are answered in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainwright {

constexpr int64_t BEAT_CREDIT = 1 << 16;    // credit that a beat costs
constexpr uint32_t CERTAIN = 1 << 12;       // stall probability 1
constexpr uint32_t MOST_OUTSTANDING = 256;  // bursts in flight per direction

enum Response : uint8_t { OKAY = 0, DECERR = 3 };
enum Channel { AW, W, B, AR, R, CHANNELS };

// Run-time settings; trainwright_sim/library.py mirrors the layout.
struct MemorySettings {
    uint32_t read_latency = 40;   // cycles from an accepted read address to its first beat, >= 1
    uint32_t write_latency = 10;  // cycles from the last accepted beat to the response, >= 1
    uint32_t outstanding = 16;    // bursts per direction taken before the first is answered
    uint32_t rate = BEAT_CREDIT * 4 / 5;  // credit gained per cycle, reads and writes together
    uint32_t stall[CHANNELS] = {};        // probability x CERTAIN that a channel pauses for a cycle
    uint32_t reserved = 0;
    uint64_t seed = 1;
};

struct Address {
    uint32_t address, id;
    uint8_t length, size, burst;
    bool operator==(const Address &other) const {
        return address == other.address && id == other.id && length == other.length &&
               size == other.size && burst == other.burst;
    }
    uint32_t beats() const { return length + 1u; }
};

// Signals that the design drives, sampled in one cycle. A payload counts only with its valid.
struct Requests {
    bool aw_valid = false, w_valid = false, b_ready = false, ar_valid = false, r_ready = false;
    bool w_last = false;
    uint32_t w_strobe = 0;
    Address aw{}, ar{};
    alignas(16) uint8_t w_data[16] = {};
};

// Signals that the memory drives in the next cycle.
struct Responses {
    bool aw_ready = false, w_ready = false, b_valid = false, ar_ready = false, r_valid = false;
    bool r_last = false;
    uint8_t b_response = OKAY, r_response = OKAY;
    uint32_t b_id = 0, r_id = 0;
    const uint8_t *r_data = nullptr;  // with r_valid
};

class Memory {
public:
    // Construct a memory over `bytes`, which the caller owns. Beats have at most 16 bytes.
    Memory(uint8_t *bytes, uint64_t size, uint32_t beat_bytes);

    void configure(const MemorySettings &settings);  // restarts the random stalls too
    void reset();                                    // forgets every burst and fault

    // Advance a cycle: take data handed over under `responses()`, decide the next responses.
    void step(const Requests &requests);

    const Responses &responses() const { return responses_; }
    const std::string &fault() const { return fault_; }  // first protocol violation, or empty
    uint64_t beats_read() const { return beats_read_; }
    uint64_t beats_written() const { return beats_written_; }

private:
    struct Burst {
        Address request{};
        uint64_t due = 0;  // first cycle of the answer
        uint32_t beats_done = 0;
        uint8_t response = OKAY;
        std::vector<uint8_t> data;
        std::vector<uint32_t> strobes;  // one per beat; writes only
    };
    class Queue {  // ring that reuses its buffers
    public:
        Burst &push();
        void pop() { ++first_, --count_; }
        Burst &operator[](uint32_t n) { return ring_[(first_ + n) % MOST_OUTSTANDING]; }
        uint32_t size() const { return count_; }
        void clear() { count_ = 0; }

    private:
        std::vector<Burst> ring_ = std::vector<Burst>(MOST_OUTSTANDING);
        uint32_t first_ = 0, count_ = 0;
    };
    template <typename Payload>
    struct Held {  // request that waits for its ready and must not change meanwhile
        bool waiting = false;
        Payload payload{};
    };
    struct WriteBeat {
        bool last;
        uint32_t strobe;
        uint8_t data[16];
    };

    void take_read(const Address &request);
    void take_write(const Address &request);
    void take_beat(const Requests &requests);
    void finish_handshakes(const Requests &requests);
    void decide();
    void commit(const Burst &burst);
    uint8_t check_address(const char *channel, const Address &request);
    void check_held(const Requests &requests);
    void fail(const char *channel, const std::string &what);
    bool paused(Channel channel) const {
        return stalls_ && ((draw_ >> (4 + 12 * channel)) & (CERTAIN - 1)) < settings_.stall[channel];
    }

    uint8_t *bytes_;
    uint64_t size_;
    uint32_t beat_bytes_;
    MemorySettings settings_;

    bool stalls_ = false;
    uint64_t random_ = 1, draw_ = 0;
    uint64_t now_ = 0;
    int64_t credit_ = 0;
    Queue reads_, writes_;        // writes_: addresses taken, response not yet accepted
    uint32_t writes_filled_ = 0;  // writes in writes_ whose data is complete
    Held<Address> held_aw_, held_ar_;
    Held<WriteBeat> held_w_;
    Responses responses_;
    std::string fault_;
    uint64_t beats_read_ = 0, beats_written_ = 0;
};

}  // namespace trainwright
