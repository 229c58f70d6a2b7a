/* Model of an SDR SDRAM of 16 bits, 4 banks, 8192 rows, 512 columns, by its data sheet: commands,
 * times and contents, each checked. Written in C, so that benches in Python load it too.
 *
 * Times are those of an MT48LC16M16A2-75 (power-up: of a W9825G6), stated here a second
 * time, so that a mistake of the controller cannot hide. Features that the controller does not use are
 * faults as well: automatic precharge, bursts cut short, masked reads, power-down. */
#ifndef SDRAM_CHIP_H
#define SDRAM_CHIP_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SDRAM_BANKS = 4, SDRAM_ROWS = 8192, SDRAM_COLUMNS = 512, SDRAM_SLOTS = 16 };
#define SDRAM_BYTES (2u * SDRAM_BANKS * SDRAM_ROWS * SDRAM_COLUMNS)

/* picoseconds */
#define SDRAM_TRCD 20000u
#define SDRAM_TRP 20000u
#define SDRAM_TRAS 44000u
#define SDRAM_TRC 66000u
#define SDRAM_TRFC 66000u
#define SDRAM_TRRD 15000u
#define SDRAM_TWR 15000u
#define SDRAM_TREFI 7812500u
#define SDRAM_TCK_CL2 10000u
#define SDRAM_TCK_CL3 7500u
#define SDRAM_TMRD 2u /* cycles */
#define SDRAM_TWR_CYCLES 2u
#define SDRAM_POWER_UP_REFRESHES 8u
#define SDRAM_LATE_REFRESHES 8u /* how many may be put off */

/* Pins that the controller drives in one cycle. */
typedef struct {
    uint32_t cke, cs_n, ras_n, cas_n, we_n, ba, a, dqm, dq_o, dq_oe;
} sdram_pins;

typedef struct {
    int is_open;
    uint32_t row;
    uint64_t activated, precharged, written; /* cycles of the last of each; written: last word */
    uint64_t busy;                           /* cycle after the last word of a burst */
} sdram_bank;

typedef struct {
    uint64_t activates, precharges, reads, writes, refreshes, cycles;
} sdram_counts;

typedef struct {
    uint16_t *cells; /* by row, bank, column */
    uint64_t period, power_up;
    sdram_bank banks[SDRAM_BANKS];
    int is_precharged, is_ready; /* all banks once; mode loaded */
    uint32_t latency, burst;
    uint64_t now, last_activate, last_refresh, last_mode, ready_since, owed_since;
    uint64_t burst_end; /* cycle after the words of the last READ or WRITE */
    uint64_t due[SDRAM_SLOTS];
    uint16_t word[SDRAM_SLOTS];
    uint32_t write_at, write_left;
    uint32_t noise;
    sdram_counts counts;
    char fault[160];
} sdram_chip;

static void sdram_reset(sdram_chip *chip) {
    uint16_t *cells = chip->cells;
    uint64_t period = chip->period, power_up = chip->power_up;
    sdram_counts counts = chip->counts;
    memset(chip, 0, sizeof *chip);
    chip->cells = cells;
    chip->period = period;
    chip->power_up = power_up;
    chip->counts = counts;
    chip->noise = 1;
}

/* Make a chip with a clock of `period` picoseconds and a power-up time of `power_up` picoseconds.
 * Returns NULL if memory is short. */
static sdram_chip *sdram_new(uint64_t period, uint64_t power_up) {
    sdram_chip *chip = (sdram_chip *)calloc(1, sizeof *chip);
    if (chip == NULL) return NULL;
    chip->cells = (uint16_t *)calloc(1, SDRAM_BYTES);
    if (chip->cells == NULL) {
        free(chip);
        return NULL;
    }
    chip->period = period;
    chip->power_up = power_up;
    sdram_reset(chip);
    return chip;
}

static void sdram_free(sdram_chip *chip) {
    if (chip) free(chip->cells);
    free(chip);
}

static void sdram_fail(sdram_chip *chip, const char *command, const char *what) {
    if (!chip->fault[0]) {
        snprintf(chip->fault, sizeof chip->fault, "%s: %s, in cycle %llu", command, what,
                 (unsigned long long)chip->now);
    }
}

/* Return whether fewer than `least` picoseconds have passed since a cycle; cycle 0 is never. */
static int sdram_early(const sdram_chip *chip, uint64_t since, uint64_t least) {
    return since && (chip->now - since) * chip->period < least;
}

static void sdram_need_ready(sdram_chip *chip, const char *command) {
    if (!chip->is_ready) sdram_fail(chip, command, "before LOAD MODE");
    if (sdram_early(chip, chip->last_refresh, SDRAM_TRFC)) sdram_fail(chip, command, "tRFC");
    if (chip->last_mode && chip->now - chip->last_mode < SDRAM_TMRD) {
        sdram_fail(chip, command, "tMRD");
    }
}

static void sdram_activate(sdram_chip *chip, uint32_t ba, uint32_t row) {
    sdram_bank *bank = &chip->banks[ba];
    sdram_need_ready(chip, "ACTIVATE");
    if (bank->is_open) sdram_fail(chip, "ACTIVATE", "the bank has an open row");
    if (sdram_early(chip, bank->precharged, SDRAM_TRP)) sdram_fail(chip, "ACTIVATE", "tRP");
    if (sdram_early(chip, bank->activated, SDRAM_TRC)) sdram_fail(chip, "ACTIVATE", "tRC");
    if (sdram_early(chip, chip->last_activate, SDRAM_TRRD)) sdram_fail(chip, "ACTIVATE", "tRRD");
    bank->is_open = 1;
    bank->row = row;
    bank->activated = chip->last_activate = chip->now;
    ++chip->counts.activates;
}

static void sdram_close(sdram_chip *chip, sdram_bank *bank) {
    if (!bank->is_open) return;
    if (sdram_early(chip, bank->activated, SDRAM_TRAS)) sdram_fail(chip, "PRECHARGE", "tRAS");
    if (sdram_early(chip, bank->written, SDRAM_TWR) ||
        (bank->written && chip->now - bank->written < SDRAM_TWR_CYCLES)) {
        sdram_fail(chip, "PRECHARGE", "tWR");
    }
    if (chip->now < bank->busy) sdram_fail(chip, "PRECHARGE", "cuts a burst short");
    bank->is_open = 0;
    bank->precharged = chip->now;
}

static void sdram_precharge(sdram_chip *chip, uint32_t ba, uint32_t all) {
    if (chip->now * chip->period < chip->power_up) {
        sdram_fail(chip, "PRECHARGE", "before the end of power-up");
    }
    if (sdram_early(chip, chip->last_refresh, SDRAM_TRFC)) sdram_fail(chip, "PRECHARGE", "tRFC");
    for (uint32_t n = 0; n < SDRAM_BANKS; ++n) {
        if (!all && n != ba) continue;
        sdram_close(chip, &chip->banks[n]);
        if (!chip->is_precharged) chip->banks[n].precharged = chip->now;
    }
    if (all) chip->is_precharged = 1;
    ++chip->counts.precharges;
}

static void sdram_idle(sdram_chip *chip, const char *command) {
    if (!chip->is_precharged) sdram_fail(chip, command, "before PRECHARGE of all banks");
    for (uint32_t n = 0; n < SDRAM_BANKS; ++n) {
        if (chip->banks[n].is_open) sdram_fail(chip, command, "a row is open");
        if (sdram_early(chip, chip->banks[n].precharged, SDRAM_TRP)) {
            sdram_fail(chip, command, "tRP");
        }
    }
    if (sdram_early(chip, chip->last_refresh, SDRAM_TRFC)) sdram_fail(chip, command, "tRFC");
}

static void sdram_refresh(sdram_chip *chip) {
    sdram_idle(chip, "REFRESH");
    if (chip->last_mode && chip->now - chip->last_mode < SDRAM_TMRD) {
        sdram_fail(chip, "REFRESH", "tMRD");
    }
    chip->last_refresh = chip->now;
    chip->owed_since += SDRAM_TREFI;
    ++chip->counts.refreshes;
}

static void sdram_mode(sdram_chip *chip, uint32_t a) {
    const uint32_t latency = a >> 4 & 7, burst = a & 7;
    sdram_idle(chip, "LOAD MODE");
    if (chip->owed_since < SDRAM_POWER_UP_REFRESHES * (uint64_t)SDRAM_TREFI) {
        sdram_fail(chip, "LOAD MODE", "too few refreshes before");
    }
    if (a & ~0x77u || burst < 1 || burst > 3 || latency < 2 || latency > 3) {
        sdram_fail(chip, "LOAD MODE", "a mode that is not modelled");
    }
    if (chip->period < (latency == 2 ? SDRAM_TCK_CL2 : SDRAM_TCK_CL3)) {
        sdram_fail(chip, "LOAD MODE", "the clock is too fast for the CAS latency");
    }
    chip->latency = latency;
    chip->burst = 1u << burst;
    chip->last_mode = chip->now;
    chip->owed_since = chip->now * chip->period;
    chip->is_ready = 1;
}

static void sdram_column(sdram_chip *chip, const sdram_pins *pins, int is_write) {
    const char *name = is_write ? "WRITE" : "READ";
    sdram_bank *bank = &chip->banks[pins->ba & 3];
    const uint32_t column = pins->a & (SDRAM_COLUMNS - 1);
    sdram_need_ready(chip, name);
    if (!bank->is_open) sdram_fail(chip, name, "no row is open");
    if (sdram_early(chip, bank->activated, SDRAM_TRCD)) sdram_fail(chip, name, "tRCD");
    if (pins->a & 1u << 10) sdram_fail(chip, name, "with automatic precharge");
    if (column & (chip->burst - 1)) sdram_fail(chip, name, "the burst would wrap");
    if (chip->now < chip->burst_end) sdram_fail(chip, name, "cuts a burst short");
    if (chip->fault[0]) return;
    const uint32_t at = (bank->row << 2 | (pins->ba & 3)) << 9 | column;
    chip->burst_end = bank->busy = chip->now + chip->burst;
    if (is_write) {
        bank->written = chip->now + chip->burst - 1;
        chip->write_at = at;
        chip->write_left = chip->burst;
        ++chip->counts.writes;
        return;
    }
    for (uint32_t n = 0; n < chip->burst; ++n) {
        const uint64_t when = chip->now + chip->latency + n;
        chip->due[when % SDRAM_SLOTS] = when;
        chip->word[when % SDRAM_SLOTS] = chip->cells[at + n];
    }
    ++chip->counts.reads;
}

static int sdram_drives(const sdram_chip *chip, uint64_t cycle) {
    return cycle && chip->due[cycle % SDRAM_SLOTS] == cycle;
}

static void sdram_data(sdram_chip *chip, const sdram_pins *pins) {
    const uint64_t now = chip->now;
    if (pins->dq_oe) {
        if (sdram_drives(chip, now - 1) || sdram_drives(chip, now) || sdram_drives(chip, now + 1)) {
            sdram_fail(chip, "data", "driven from both sides");
        }
    }
    /* masks apply to reads two cycles later */
    if (pins->dqm && sdram_drives(chip, now + 2)) sdram_fail(chip, "READ", "masked");
    if (!chip->write_left) return;
    if (!pins->dq_oe) sdram_fail(chip, "WRITE", "its data is not driven");
    const uint16_t mask = (pins->dqm & 1 ? 0x00FF : 0) | (pins->dqm & 2 ? 0xFF00 : 0);
    uint16_t *cell = &chip->cells[chip->write_at];
    *cell = (uint16_t)((*cell & mask) | (pins->dq_o & ~mask));
    ++chip->write_at;
    --chip->write_left;
}

/* Advance a cycle with the controller's pins. Returns the data pins of the next cycle, noise while
 * the chip does not drive them. */
static uint32_t sdram_step(sdram_chip *chip, const sdram_pins *pins) {
    ++chip->now;
    ++chip->counts.cycles;
    if (!pins->cke) sdram_fail(chip, "CKE", "low");
    if (!pins->cs_n) {
        switch (pins->ras_n << 2 | pins->cas_n << 1 | pins->we_n) {
        case 7: break;
        case 3: sdram_activate(chip, pins->ba & 3, pins->a & (SDRAM_ROWS - 1)); break;
        case 5: sdram_column(chip, pins, 0); break;
        case 4: sdram_column(chip, pins, 1); break;
        case 2: sdram_precharge(chip, pins->ba & 3, pins->a >> 10 & 1); break;
        case 1: sdram_refresh(chip); break;
        case 0: sdram_mode(chip, pins->a); break;
        default: sdram_fail(chip, "BURST TERMINATE", "is not modelled");
        }
    }
    sdram_data(chip, pins);
    if (chip->is_ready && chip->now * chip->period >
                              chip->owed_since + SDRAM_LATE_REFRESHES * (uint64_t)SDRAM_TREFI) {
        sdram_fail(chip, "REFRESH", "too late");
    }
    const uint64_t next = chip->now + 1;
    if (sdram_drives(chip, next)) return chip->word[next % SDRAM_SLOTS];
    chip->noise = chip->noise * 1664525u + 1013904223u;
    return chip->noise >> 16;
}

#endif
