/* Pack operands of 16-lane contractions as pairs of terms, and find their largest values. */
#ifndef TRAINWRIGHT_PACK_H
#define TRAINWRIGHT_PACK_H

#include "machine.h"
#include "numbers.h"
#include "plain.h"
#include "requantise.h"
#include "vector.h"

enum { TILE = 8 };

/* Data shared by all tiles of one descriptor. A *step* is a pair of terms of a sum. */
typedef struct {
    Machine *m;
    const Compute *d;
    const Operands *o;
    const int64_t *base;
    Requantiser *rq;
    Places sum;
    int64_t rows;        /* rows of a full tile */
    int64_t steps;       /* steps of each sum */
    int64_t scalar_step; /* packed scalars from one step to the next */
    int64_t limit;       /* largest |sum| for 32 bits */
    int64_t x_most;      /* largest |x| of the operand; -1: not computed yet */
} Contraction;

/* Tile: its address, and its packed operands. */
typedef struct {
    int64_t x, z, rows;
    const int32_t *vectors; /* (steps, 16) */
    const int32_t *scalars; /* (steps, scalar_step); PE3 */
} Tile;

/* Largest |word| at each of 16 places, gathered over rows. */
typedef struct {
    uint16_t at[LANES];
} Most;

static inline void most_of(Most *most, const int16_t *words)
{
    for (int l = 0; l < LANES; l++) {
        uint16_t value = (uint16_t)(words[l] < 0 ? -words[l] : words[l]);
        most->at[l] = value > most->at[l] ? value : most->at[l];
    }
}

static inline int64_t largest(const Most *most)
{
    uint16_t found = 0;
    for (int l = 0; l < LANES; l++)
        found = most->at[l] > found ? most->at[l] : found;
    return found;
}

static int64_t largest_packed(const int32_t *packed, int64_t count)
{
    Most most = {{0}};
    for (int64_t i = 0; i < count; i += LANES / 2)
        most_of(&most, (const int16_t *)(packed + i));
    return largest(&most);
}

static int64_t largest_x(Contraction *c, const Places *both, const Places *first)
{
    if (c->x_most >= 0)
        return c->x_most;
    Most most = {{0}};
    for (int64_t b = 0; b < both->count; b++) {
        for (int64_t f = 0; f < first->count; f++) {
            int64_t rows = both->last[b] | first->last[f] ? c->d->last_rows : c->rows;
            const int16_t *x = c->o->pad + (c->base[0] + both->x[b] + first->x[f]) * LANES;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t k = 0; k < c->sum.count; k++)
                    most_of(&most, x + (r * c->d->x_row_stride + c->sum.x[k]) * LANES);
        }
    }
    return c->x_most = largest(&most);
}

static inline void interleave(const int16_t *low, const int16_t *high, int count, int32_t *out)
{
    for (int i = 0; i < count; i++)
        out[i] = (int32_t)((uint32_t)(uint16_t)low[i] | (uint32_t)(uint16_t)high[i] << 16);
}

static const int16_t zeros[LANES];

static inline void pack_entries(const Contraction *c, int64_t g, int32_t *out)
{
    for (int64_t k = 0; k < c->sum.count; k++, out += 8 * LANES)
        transpose_pairs(c->o->pad + (g + c->sum.g[k]) * c->o->g_words, c->o->entry_step, out);
}

static inline void pack_rows(const Contraction *c, int64_t x, int32_t *out)
{
    const int16_t *from = c->o->pad + x * LANES;
    const int64_t *at = c->sum.x, even = c->sum.count & ~(int64_t)1;
    for (int64_t k = 0; k < even; k += 2, out += LANES)
        interleave(from + at[k] * LANES, from + at[k + 1] * LANES, LANES, out);
    if (even < c->sum.count)
        interleave(from + at[even] * LANES, zeros, LANES, out);
}

static inline void pack_scalars(const Contraction *c, int64_t g, int32_t *out)
{
    const int16_t *from = c->o->pad + g * c->o->g_words;
    const int64_t *at = c->sum.g, count = c->sum.count, words = c->o->g_words;
    for (int64_t k = 0; k < count; k += 2, out += c->scalar_step) {
        const int16_t *low = from + at[k] * words;
        const int16_t *high = k + 1 < count ? from + at[k + 1] * words : zeros;
        if (c->rows == TILE)
            interleave(low, high, TILE, out);
        else
            interleave(low, high, (int)c->rows, out);
    }
}

#endif
