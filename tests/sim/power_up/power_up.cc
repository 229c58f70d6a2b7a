// Simulation whose memories and registers start with random words, unless the design gives others.
#include "Vsimulated.h"
#include "verilated.h"

namespace {

int power_up_seed = 1;

struct RandomContext : VerilatedContext {
    RandomContext() {
        randReset(2);
        randSeed(power_up_seed);
    }
};

}  // namespace

#define ENGINE_VERILATOR
#define VerilatedContext RandomContext
#include "harness.cc"
#undef VerilatedContext  // the design's code follows in the same unit

// Set the seed of designs that are opened from now on.
extern "C" __attribute__((visibility("default"))) void trainwright_power_up(int seed) {
    power_up_seed = seed;
}
