/* Sum a tile over a range of terms; compute tiles whose sums need more than 32 bits. */
#ifndef TRAINWRIGHT_WIDE_H
#define TRAINWRIGHT_WIDE_H

#include "pack.h"
#include "stochastic.h"

enum { LEAST_CHUNK = 64 };

/* Sum vectors [from, to) for rows r to r + 7 of a tile, as many rows at a time as registers hold. Rows
 * beyond the tile's last one get meaningless sums. */
static INLINE void add_entries(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                               int64_t from, int64_t to, Sums *sums)
{
    for (int first = 0; first < TILE; first += TOGETHER) {
        const int16_t *row[TOGETHER];
        Sums sum[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            int64_t at = r + first + i < t->rows ? r + first + i : r;
            row[i] = c->o->pad + (t->x + at * c->d->x_row_stride) * LANES;
            sum[i] = sums_zero();
        }
        const int32_t *v = vectors + from * LANES;
        for (int64_t k = from / 8; k < to / 8; k++, v += 8 * LANES) {
            const int64_t at = c->sum.x[k] * LANES;
            for (int p = 0; p < 8; p++) {
                Sums pairs = sums_load(v + p * LANES);
                for (int i = 0; i < TOGETHER; i++)
                    sum[i] = sums_dot(sum[i], pairs, pair_at(row[i] + at + 2 * p));
            }
        }
        for (int i = 0; i < TOGETHER; i++)
            sums[first + i] = sum[i];
    }
}

static INLINE void add_scalars(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                               int64_t from, int64_t to, Sums *sums)
{
    for (int first = 0; first < TILE; first += TOGETHER) {
        Sums sum[TOGETHER];
        for (int i = 0; i < TOGETHER; i++)
            sum[i] = sums_zero();
        const int32_t *v = vectors + from * LANES;
        const int32_t *s = t->scalars + from * c->scalar_step + r + first;
        for (int64_t k = from; k < to; k++, v += LANES, s += c->scalar_step) {
            Sums pairs = sums_load(v);
            for (int i = 0; i < TOGETHER; i++)
                sum[i] = sums_dot(sum[i], pairs, s[i]);
        }
        for (int i = 0; i < TOGETHER; i++)
            sums[first + i] = sum[i];
    }
}

static INLINE void add_terms(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                             int64_t from, int64_t to, Sums *sums, const int entries)
{
    if (entries)
        add_entries(c, t, vectors, r, from, to, sums);
    else
        add_scalars(c, t, vectors, r, from, to, sums);
}

/* Write row r of a tile to the scratchpad, and to the trace if there is one. */
static inline void put_row(const Contraction *c, const Tile *t, int64_t r, const int16_t *row)
{
    const int64_t z = t->z + r * c->d->z_row_stride;
    memcpy(c->m->pad + z * LANES, row, LANES * sizeof(int16_t));
    if (c->m->tracing)
        put_trace(c->m, trace_of(c->d->operation), z, row);
}

static void trace_narrow(const Contraction *c, const Tile *t, int64_t r, const Sums *sums, int rows)
{
    int16_t words[TILE * LANES];
    requantise_sums(c->rq, sums, rows, words, LANES);
    for (int i = 0; i < rows; i++)
        put_row(c, t, r + i, words + i * LANES);
}

static void put_narrow_random(const Contraction *c, const Tile *t, int64_t r, const Sums *sums,
                              int rows)
{
    Random random;
    random_tile(c->rq, c->d, t->z, r, rows, LANES, &random);
    for (int i = 0; i < rows; i++) {
        int32_t row[LANES];
        int16_t words[LANES];
        sums_store(row, sums[i]);
        requantise_narrow_random(c->rq, row, random.at[i], LANES, words);
        put_row(c, t, r + i, words);
    }
}

/* Add ``scale`` times sums of 32 bits, each over ``chunk`` steps, to the sums of 64 bits in ``wide``. */
static void add_wide(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                     int64_t chunk, int64_t scale, int64_t *wide)
{
    for (int64_t from = 0; from < c->steps; from += chunk) {
        const int64_t to = from + chunk < c->steps ? from + chunk : c->steps;
        Sums sums[TILE];
        int32_t row[LANES];
        if (by_entries(c->d))
            add_entries(c, t, vectors, r, from, to, sums);
        else
            add_scalars(c, t, vectors, r, from, to, sums);
        for (int i = 0; i < TILE; i++) {
            sums_store(row, sums[i]);
            for (int l = 0; l < LANES; l++)
                wide[i * LANES + l] += row[l] * scale;
        }
    }
}

/* Split words of vectors into high and low, with 256 * high + low the word: all highs come first, then
 * all lows. A low has 8 bits with its sign; a high may be one larger, by the carry of a low.
 * Returns NULL if memory is short. */
static const int32_t *halves(const Contraction *c, const int32_t *vectors)
{
    const int64_t words = c->steps * LANES * 2;
    const int16_t *whole = (const int16_t *)vectors;
    int16_t *parts = reserve(c->m, PARTS, (size_t)words * 2 * sizeof(int16_t));
    for (int64_t i = 0; parts && i < words; i++) {
        int upper = (whole[i] + 128) >> 8;
        parts[i] = (int16_t)upper;
        parts[words + i] = (int16_t)(whole[i] - upper * 256);
    }
    return (const int32_t *)parts;
}

/* Compute a tile whose operands are at most vector_most and scalar_most: sums over as many terms as fit
 * 32 bits are added in 64 bits. If too few terms fit, the words of vectors are split first. */
static int put_wide(const Contraction *c, const Tile *t, int64_t vector_most, int64_t scalar_most)
{
    const int64_t unit = by_entries(c->d) ? 8 : 1; /* steps that stay together */
    const int64_t most = vector_most * scalar_most;
    /* A step adds the two products of a pair of words to a sum of 32 bits. */
    int64_t chunk = most ? INT32_MAX / most / 2 / unit * unit : c->steps;
    const int split = chunk < c->steps && chunk * 2 < LEAST_CHUNK;
    const int32_t *high = t->vectors, *low = NULL;
    if (split) {
        if (!(high = halves(c, t->vectors)))
            return 0;
        low = high + c->steps * LANES;
        chunk = INT32_MAX / (128 * scalar_most) / 2 / unit * unit;
    }
    for (int64_t r = 0; r < t->rows; r += TILE) {
        int64_t wide[TILE * LANES] = {0};
        add_wide(c, t, high, r, chunk, split ? 256 : 1, wide);
        if (split)
            add_wide(c, t, low, r, chunk, 1, wide);
        const int rows = t->rows - r < TILE ? (int)(t->rows - r) : TILE;
        Random random;
        if (c->rq->stochastic)
            random_tile(c->rq, c->d, t->z, r, rows, LANES, &random);
        for (int i = 0; i < rows; i++) {
            int16_t row[LANES];
            if (c->rq->stochastic)
                requantise_wide_random(c->rq, wide + i * LANES, random.at[i], LANES, row);
            else
                requantise_wide(c->rq, wide + i * LANES, LANES, row);
            put_row(c, t, r + i, row);
        }
    }
    return 1;
}

#endif
