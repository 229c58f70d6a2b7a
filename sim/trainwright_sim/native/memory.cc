#include "memory.h"

#include <algorithm>
#include <cstring>

namespace trainwright {

namespace {

constexpr uint32_t BOUNDARY = 4096;
constexpr uint8_t INCR = 1;

uint64_t mix(uint64_t seed) {  // splitmix64: no seed gives the state zero
    seed += 0x9E3779B97F4A7C15u;
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
    return (seed ^ (seed >> 31)) | 1;
}

uint64_t xorshift(uint64_t &state) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du;
}

}  // namespace

Memory::Burst &Memory::Queue::push() { return ring_[(first_ + count_++) % MOST_OUTSTANDING]; }

Memory::Memory(uint8_t *bytes, uint64_t size, uint32_t beat_bytes)
    : bytes_(bytes), size_(size), beat_bytes_(beat_bytes) {
    configure(MemorySettings{});
}

void Memory::configure(const MemorySettings &settings) {
    settings_ = settings;
    stalls_ = std::any_of(settings.stall, settings.stall + CHANNELS, [](auto s) { return s > 0; });
    random_ = mix(settings.seed);
    credit_ = 0;
}

void Memory::reset() {
    reads_.clear();
    writes_.clear();
    writes_filled_ = 0;
    held_aw_.waiting = held_ar_.waiting = held_w_.waiting = false;
    responses_ = Responses{};
    fault_.clear();
    configure(settings_);
}

void Memory::fail(const char *channel, const std::string &what) {
    if (fault_.empty()) fault_ = std::string(channel) + ": " + what;
}

uint8_t Memory::check_address(const char *channel, const Address &request) {
    const uint32_t bytes = request.beats() * beat_bytes_;
    if (request.burst != INCR) fail(channel, "burst type is not INCR");
    if ((1u << request.size) != beat_bytes_) fail(channel, "beats are narrower than the port");
    if (request.address % beat_bytes_) fail(channel, "address is not a multiple of the beat size");
    if (request.address % BOUNDARY + bytes > BOUNDARY) fail(channel, "burst crosses 4 KiB");
    return uint64_t(request.address) + bytes <= size_ ? OKAY : DECERR;
}

void Memory::take_read(const Address &request) {
    Burst &burst = reads_.push();
    burst.request = request;
    burst.due = now_ + settings_.read_latency;
    burst.beats_done = 0;
    burst.response = check_address("AR", request);
    const uint32_t bytes = request.beats() * beat_bytes_;
    if (burst.response == OKAY) {
        burst.data.assign(bytes_ + request.address, bytes_ + request.address + bytes);
    } else {
        burst.data.assign(bytes, 0);
    }
}

void Memory::take_write(const Address &request) {
    Burst &burst = writes_.push();
    burst.request = request;
    burst.beats_done = 0;
    burst.response = check_address("AW", request);
    burst.data.resize(request.beats() * beat_bytes_);
    burst.strobes.resize(request.beats());
}

void Memory::take_beat(const Requests &requests) {
    Burst &burst = writes_[writes_filled_];
    std::memcpy(&burst.data[burst.beats_done * beat_bytes_], requests.w_data, beat_bytes_);
    burst.strobes[burst.beats_done++] = requests.w_strobe;
    ++beats_written_;
    credit_ -= BEAT_CREDIT;
    const bool last = burst.beats_done == burst.request.beats();
    if (requests.w_last != last) fail("W", last ? "last beat without WLAST" : "early WLAST");
    if (last) {
        burst.due = now_ + settings_.write_latency;
        ++writes_filled_;
    }
}

void Memory::commit(const Burst &burst) {
    if (burst.response != OKAY) return;
    const uint32_t whole = (1u << beat_bytes_) - 1;
    uint8_t *target = bytes_ + burst.request.address;
    const uint8_t *source = burst.data.data();
    for (uint32_t strobe : burst.strobes) {
        if (strobe == whole) {
            std::memcpy(target, source, beat_bytes_);
        } else {
            for (uint32_t n = 0; n < beat_bytes_; ++n) {
                if (strobe >> n & 1) target[n] = source[n];
            }
        }
        target += beat_bytes_;
        source += beat_bytes_;
    }
}

void Memory::check_held(const Requests &requests) {
    if (held_aw_.waiting && !(requests.aw_valid && requests.aw == held_aw_.payload)) {
        fail("AW", "request withdrawn or changed before it was taken");
    }
    if (held_ar_.waiting && !(requests.ar_valid && requests.ar == held_ar_.payload)) {
        fail("AR", "request withdrawn or changed before it was taken");
    }
    if (held_w_.waiting) {
        const WriteBeat &beat = held_w_.payload;
        if (!requests.w_valid || requests.w_last != beat.last || requests.w_strobe != beat.strobe ||
            std::memcmp(requests.w_data, beat.data, beat_bytes_) != 0) {
            fail("W", "beat withdrawn or changed before it was taken");
        }
    }
    held_aw_.waiting = requests.aw_valid && !responses_.aw_ready;
    held_ar_.waiting = requests.ar_valid && !responses_.ar_ready;
    held_w_.waiting = requests.w_valid && !responses_.w_ready;
    if (held_aw_.waiting) held_aw_.payload = requests.aw;
    if (held_ar_.waiting) held_ar_.payload = requests.ar;
    if (held_w_.waiting) {
        held_w_.payload.last = requests.w_last;
        held_w_.payload.strobe = requests.w_strobe;
        std::memcpy(held_w_.payload.data, requests.w_data, beat_bytes_);
    }
}

void Memory::finish_handshakes(const Requests &requests) {
    if (requests.ar_valid && responses_.ar_ready) take_read(requests.ar);
    if (requests.aw_valid && responses_.aw_ready) take_write(requests.aw);
    if (requests.w_valid && responses_.w_ready) take_beat(requests);
    if (responses_.b_valid && requests.b_ready) {
        writes_.pop();
        --writes_filled_;
        responses_.b_valid = false;
    }
    if (responses_.r_valid && requests.r_ready) {
        if (responses_.r_last) reads_.pop();
        ++beats_read_;
        responses_.r_valid = false;
    }
}

void Memory::decide() {
    // Each direction may move a beat while there is credit, and may so run into debt: both are
    // served alike, and together they get exactly `rate`.
    responses_.ar_ready = reads_.size() < settings_.outstanding && !paused(AR);
    responses_.aw_ready = writes_.size() < settings_.outstanding && !paused(AW);
    responses_.w_ready = writes_.size() > writes_filled_ && credit_ > 0 && !paused(W);
    if (!responses_.r_valid && reads_.size() && credit_ > 0 && !paused(R)) {
        Burst &burst = reads_[0];
        if (burst.due <= now_) {
            responses_.r_valid = true;
            responses_.r_data = &burst.data[burst.beats_done++ * beat_bytes_];
            responses_.r_last = burst.beats_done == burst.request.beats();
            responses_.r_response = burst.response;
            responses_.r_id = burst.request.id;
            credit_ -= BEAT_CREDIT;
        }
    }
    if (!responses_.b_valid && writes_filled_ && writes_[0].due <= now_ && !paused(B)) {
        commit(writes_[0]);
        responses_.b_valid = true;
        responses_.b_response = writes_[0].response;
        responses_.b_id = writes_[0].request.id;
    }
}

void Memory::step(const Requests &requests) {
    check_held(requests);
    finish_handshakes(requests);
    ++now_;
    credit_ = std::min(credit_ + int64_t(settings_.rate), BEAT_CREDIT);
    if (stalls_) draw_ = xorshift(random_);
    decide();
}

}  // namespace trainwright
