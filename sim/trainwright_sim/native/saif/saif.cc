// Drive a multiplier of mapped cells, without a clock, and write the toggles of its nets (SAIF).
#include <cstdint>

#include "Vsimulated.h"
#include "ports.h"
#include "verilated.h"
#include "verilated_saif_c.cpp"

// Multiply `pairs` operands, one pair a unit of time, and write the SAIF file `path`.
extern "C" __attribute__((visibility("default"))) void trainwright_saif(const char *path,
                                                                        uint64_t pairs,
                                                                        const uint32_t *a,
                                                                        const uint32_t *b) {
    VerilatedContext context;
    context.traceEverOn(true);
    Vsimulated top(&context, "top");
    VerilatedSaifC file;
    top.trace(&file, 99);
    file.open(path);
    for (uint64_t n = 0; n < pairs; ++n) {
        top.PORT_a = a[n];
        top.PORT_b = b[n];
        top.eval();
        file.dump(n);
    }
    file.dump(pairs);  // the last pair lasts a unit of time, too
    file.close();
    top.final();
}
