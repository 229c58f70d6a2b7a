// Feed blocks with random bits, and record their outputs in every cycle.
#include <cstdint>
#include <cstring>
#include <memory>

#include "model.h"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

constexpr int MODE_CYCLES = 64;   // cycles per mode
constexpr int RESET_ONE_IN = 512;  // cycles

// G. Marsaglia, "Xorshift RNGs", 2003.
struct Random {
    uint64_t state;
    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
};

}  // namespace

// Run a block. `log` gets LOG_BYTES per cycle.
EXPORT void trainwright_lockstep(uint64_t seed, uint64_t cycles, uint8_t *log) {
    auto model = std::make_unique<trainwright::Model>();
    auto &ports = model->ports();
    Random random{seed * 2 + 1};
    for (uint64_t n = 0; n < cycles; ++n) {
        uint64_t bits[RANDOM_BYTES / 8];
        for (uint64_t &word : bits) word = random.next();
        trainwright::set_bytes<RANDOM_BYTES>(ports.PORT_random, reinterpret_cast<uint8_t *>(bits));
        if (n % MODE_CYCLES == 0) trainwright::set(ports.PORT_mode, uint32_t(random.next() >> 48));
        trainwright::set(ports.PORT_rst, n < 4 || random.next() >> 32 < (uint64_t(1) << 32) / RESET_ONE_IN);
        model->clock();
#define COPY(port, bytes)                           \
    trainwright::get_bytes<bytes>(ports.port, log); \
    log += bytes;
        OBSERVED(COPY)
#undef COPY
    }
}
