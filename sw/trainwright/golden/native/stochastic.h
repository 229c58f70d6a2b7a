/* Draw random bits for stochastic rounding, bit for bit as ``trainwright.formats.rounding``. */
#ifndef TRAINWRIGHT_STOCHASTIC_H
#define TRAINWRIGHT_STOCHASTIC_H

#include <string.h>

#include "machine.h"
#include "requantise.h"

#define STREAM_STEP 0x9E3779B9u
enum { ROUNDS = 8, KEYS_A_ROW = 16, MOST_LANES = 16 };

/* Random bits of some rows of a tile. */
typedef struct {
    int32_t at[MOST_ROWS][MOST_LANES];
} Random;

static inline uint32_t rotated(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

/* Compute the two state words of ``key``. */
static inline void mix(uint32_t stream, uint32_t key, uint32_t *low, uint32_t *high)
{
    uint32_t x = stream ^ key ^ rotated(key, 11) ^ rotated(key, 21);
    uint32_t y = rotated(stream, 16) ^ 0x9E3779B9u ^ rotated(key, 5) ^ rotated(key, 14) ^ rotated(key, 26);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t next = y ^ (rotated(x, 1) & rotated(x, 8)) ^ rotated(x, 2);
        y = x;
        x = next;
    }
    *low = x;
    *high = y;
}

/* Move units 8 to 15 to the places of 0 to 7: XOR the state with itself rotated by 24 bits. */
static inline void twist(uint32_t *low, uint32_t *high)
{
    const uint32_t x = *low, y = *high;
    *low = x ^ (x >> 24 | y << 8);
    *high = y ^ (y >> 24 | x << 8);
}

/* Draw rows r (0 or 8) to r + rows - 1 of the tile at ``z``: one key per lane, one unit per row. */
static inline void random_columns(const Requantiser *rq, int64_t z, int64_t r, int rows, int lanes,
                                  Random *random)
{
    uint32_t low[MOST_LANES], high[MOST_LANES];
    for (int l = 0; l < MOST_LANES; l++)
        mix(rq->stream, (uint32_t)(z * KEYS_A_ROW + l), &low[l], &high[l]);
    for (int i = 0; i < rows; i++) {
        const int unit = (int)r + i, down = 8 * (unit & 3);
        if (unit == 8)
            for (int l = 0; l < MOST_LANES; l++)
                twist(&low[l], &high[l]);
        const uint32_t *word = unit & 4 ? high : low;
        for (int l = 0; l < lanes; l++)
            random->at[i][l] = (int32_t)(word[l] >> down & 255);
    }
}

/* Draw rows of a tile, ``step`` addresses apart: one key per row, one unit per lane. */
static inline void random_rows(const Requantiser *rq, int64_t z, int64_t step, int rows, int lanes,
                               Random *random)
{
    const uint32_t first = (uint32_t)(z * KEYS_A_ROW), next = (uint32_t)(step * KEYS_A_ROW);
    uint32_t low[MOST_ROWS], high[MOST_ROWS], other_low[MOST_ROWS], other_high[MOST_ROWS];
    for (int i = 0; i < MOST_ROWS; i++) { /* all, as they fit a vector */
        mix(rq->stream, first + (uint32_t)i * next, &low[i], &high[i]);
        other_low[i] = low[i];
        other_high[i] = high[i];
        twist(&other_low[i], &other_high[i]);
    }
    for (int i = 0; i < rows; i++) {
        const uint32_t words[4] = {low[i], high[i], other_low[i], other_high[i]};
        uint8_t bytes[MOST_LANES];
        memcpy(bytes, words, sizeof bytes); /* the lowest first */
        for (int l = 0; l < lanes; l++)
            random->at[i][l] = bytes[l];
    }
}

/* Draw rows r (0 or 8) to r + rows - 1 of the tile of ``d`` at ``z``. */
static inline void random_tile(const Requantiser *rq, const Compute *d, int64_t z, int64_t r, int rows,
                               int lanes, Random *random)
{
    if (by_entries(d))
        random_columns(rq, z, r, rows, lanes, random);
    else
        random_rows(rq, z + r * d->z_row_stride, d->z_row_stride, rows, lanes, random);
}

/* Round sums no larger than narrow_limit(): add (2 random + 1) / 2^9 of the last place, then cut. */
static inline void requantise_narrow_random(Requantiser *rq, const int32_t *sums, const int32_t *random,
                                            int lanes, int16_t *out)
{
    const int32_t shift = rq->shift;
    const int up = shift > 9 ? shift - 9 : 0, down = shift < 9 ? 9 - shift : 0;
    PUT_ROUNDED(int32_t, (sums[l] + ((2 * random[l] + 1) << up >> down)) >> shift);
}

/* Do the same for wide sums: cut to 9 bits below the point first, so that no sum overflows. */
static inline void requantise_wide_random(Requantiser *rq, const int64_t *sums, const int32_t *random,
                                          int lanes, int16_t *out)
{
    const int shift = rq->shift, first = shift > 9 ? shift - 9 : 0, then = shift - first;
    const int down = 9 - then;
    PUT_ROUNDED(int64_t, ((sums[l] >> first) + ((2 * random[l] + 1) >> down)) >> then);
}

#endif
