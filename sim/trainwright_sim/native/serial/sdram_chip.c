/* C functions for trainwright_sim/sdram.py. */
#include "sdram_chip.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT sdram_chip *trainwright_sdram_open(uint64_t period, uint64_t power_up) {
    return sdram_new(period, power_up);
}

EXPORT void trainwright_sdram_close(sdram_chip *chip) { sdram_free(chip); }

EXPORT void trainwright_sdram_reset(sdram_chip *chip) { sdram_reset(chip); }

EXPORT uint32_t trainwright_sdram_step(sdram_chip *chip, const sdram_pins *pins) {
    return sdram_step(chip, pins);
}

EXPORT const char *trainwright_sdram_fault(const sdram_chip *chip) { return chip->fault; }

EXPORT uint8_t *trainwright_sdram_bytes(sdram_chip *chip) { return (uint8_t *)chip->cells; }

EXPORT const sdram_counts *trainwright_sdram_counts(const sdram_chip *chip) { return &chip->counts; }
