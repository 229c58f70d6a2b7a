/* Execute any compute descriptor without shortcuts: any lanes, tile by tile in the nest's order. */
#ifndef TRAINWRIGHT_PLAIN_H
#define TRAINWRIGHT_PLAIN_H

#include "machine.h"
#include "requantise.h"
#include "stochastic.h"

/* Scratchpad that a descriptor reads, and strides of g in it. */
typedef struct {
    const int16_t *pad;
    int64_t g_words;    /* words from one g address to the next */
    int64_t entry_step; /* words from one entry to the next (PE4) */
} Operands;

/* Cut a row of results into digits, and write a row of each, the highest digit first. */
static inline void put_digits(Machine *m, const Compute *d, int engine, int64_t z, const int16_t *row)
{
    const int digits = result_digits(m, d);
    for (int n = 0; n < digits; n++) {
        int16_t *to = m->pad + (z + n) * m->lanes;
        const int below = DIGIT_WIDTH * (digits - 1 - n);
        for (int64_t l = 0; l < m->lanes; l++)
            to[l] = (int16_t)(n ? row[l] >> below & ((1 << DIGIT_WIDTH) - 1) : row[l] >> below);
        if (m->tracing)
            put_trace(m, engine, z + n, to);
    }
}

/* Sum a tile. Where summed levels count digits, the sums so far are multiplied at each new digit. */
static inline void plain_tile(const Machine *m, const Compute *d, const Operands *o, int64_t x,
                              int64_t g, const Places *sum, int64_t rows, int64_t *acc)
{
    const int64_t lanes = m->lanes;
    for (int64_t i = 0; i < rows * lanes; i++)
        acc[i] = 0;
    int64_t inner = sum->count, digits = 1; /* steps of a digit; digits of that level */
    for (int64_t n = 0; n < d->digits; n++) {
        digits = d->level[d->levels - d->reduce_levels + n].count;
        inner /= digits;
    }
    for (int64_t k = 0; k < sum->count; k++) {
        for (int64_t i = 0; i < rows * lanes && k % inner == 0 && k / inner % digits; i++)
            acc[i] *= 1 << DIGIT_WIDTH;
        const int16_t *from = o->pad + (x + sum->x[k]) * lanes;
        const int16_t *with = o->pad + (g + sum->g[k]) * o->g_words;
        for (int64_t r = 0; r < rows; r++) {
            if (by_entries(d)) {
                const int16_t *row = from + r * d->x_row_stride * lanes;
                for (int64_t l = 0; l < lanes; l++)
                    for (int64_t c = 0; c < lanes; c++)
                        acc[r * lanes + l] += (int32_t)row[c] * with[l * o->entry_step + c];
            } else {
                for (int64_t l = 0; l < lanes; l++)
                    acc[r * lanes + l] += (int32_t)from[l] * with[r];
            }
        }
    }
}

static int plain_contraction(Machine *m, const Compute *d, const Operands *o, const int64_t *base,
                             Requantiser *rq)
{
    Places outer, sum;
    if (!expand(m, PLACES_A, d, outer_levels(d), &outer) ||
        !expand(m, PLACES_B, d, summed_levels(d), &sum))
        return 0;
    int64_t acc[MOST_ROWS * 16];
    for (int64_t t = 0; t < outer.count; t++) {
        int64_t rows = outer.last[t] ? d->last_rows : tile_rows(m, d);
        plain_tile(m, d, o, base[0] + outer.x[t], base[1] + outer.g[t], &sum, rows, acc);
        Random random;
        if (rq->stochastic)
            random_tile(rq, d, base[2] + outer.z[t], 0, (int)rows, (int)m->lanes, &random);
        for (int64_t r = 0; r < rows; r++) {
            int64_t z = base[2] + outer.z[t] + r * d->z_row_stride;
            int16_t to[MOST_LANES];
            if (rq->stochastic)
                requantise_wide_random(rq, acc + r * m->lanes, random.at[r], (int)m->lanes, to);
            else
                requantise_wide(rq, acc + r * m->lanes, (int)m->lanes, to);
            put_digits(m, d, trace_of(d->operation), z, to);
        }
    }
    return 1;
}

/* Compute BIAS or MASK of a row of 16 lanes whose sums fit 32 bits. */
static inline void narrow_row(const Compute *d, const int16_t *x, const int16_t *g, Requantiser *rq,
                              int16_t *to)
{
    const Sums first = sums_of_words(x), second = sums_of_words(g);
    Sums sums = sums_plus(first, (int)d->x_shift, second, (int)d->g_shift);
    if (d->operation == MASK)
        sums = sums_where(first, second);
    else if (d->relu)
        sums = sums_where(sums, sums);
    requantise_sums(rq, &sums, 1, to, 0);
}

/* Round a row of sums of any size and write it at ``z``. */
static inline void requantise_row(Requantiser *rq, const int64_t *sums, int lanes, int64_t z, int16_t *to)
{
    if (rq->stochastic) {
        Random random;
        random_rows(rq, z, 0, 1, lanes, &random);
        requantise_wide_random(rq, sums, random.at[0], lanes, to);
    } else {
        requantise_wide(rq, sums, lanes, to);
    }
}

static inline void wide_row(const Compute *d, const int16_t *x, const int16_t *g, int lanes,
                            int64_t z, Requantiser *rq, int16_t *to)
{
    int64_t v[MOST_LANES];
    for (int l = 0; l < lanes; l++) {
        int64_t sum = x[l] * ((int64_t)1 << d->x_shift) + g[l] * ((int64_t)1 << d->g_shift);
        v[l] = d->operation == MASK ? (g[l] > 0 ? x[l] : 0) : d->relu && sum < 0 ? 0 : sum;
    }
    requantise_row(rq, v, lanes, z, to);
}

/* Execute BIAS or MASK on values of several digits: the summed levels of the nest count digits. */
static int elementwise_digits(Machine *m, const Compute *d, const Operands *o, const int64_t *base,
                              Requantiser *rq)
{
    Places p, sum;
    if (!expand(m, PLACES_A, d, outer_levels(d), &p) || !expand(m, PLACES_B, d, summed_levels(d), &sum))
        return 0;
    const int lanes = (int)m->lanes;
    for (int64_t t = 0; t < p.count; t++) {
        const int64_t z = base[2] + p.z[t];
        int64_t v[MOST_LANES];
        int16_t row[MOST_LANES];
        for (int l = 0; l < lanes; l++) {
            int64_t x = 0, g = 0;
            int sign = 0;
            for (int64_t k = 0; k < sum.count; k++) {
                x = x * (1 << DIGIT_WIDTH) + o->pad[(base[0] + p.x[t] + sum.x[k]) * lanes + l];
                const int16_t second = o->pad[(base[1] + p.g[t] + sum.g[k]) * lanes + l];
                g = g * (1 << DIGIT_WIDTH) + second;
                sign = sign ? sign : (second > 0) - (second < 0);
            }
            const int64_t both = x * ((int64_t)1 << d->x_shift) + g * ((int64_t)1 << d->g_shift);
            v[l] = d->operation == MASK ? (sign > 0 ? x : 0) : d->relu && both < 0 ? 0 : both;
        }
        requantise_row(rq, v, lanes, z, row);
        put_digits(m, d, trace_of(d->operation), z, row);
    }
    return 1;
}

static int elementwise_operation(Machine *m, const Compute *d, const Operands *o,
                                 const int64_t *base, Requantiser *rq)
{
    Places p;
    if (d->digits || result_digits(m, d) > 1)
        return elementwise_digits(m, d, o, base, rq);
    if (!expand(m, PLACES_A, d, outer_levels(d), &p))
        return 0;
    int64_t most = 1 << 15;
    if (d->operation == BIAS)
        most = (most << d->x_shift) + (most << d->g_shift);
    const int lanes = (int)m->lanes;
    const int narrow = lanes == LANES && !rq->stochastic && most <= narrow_limit(rq);
    for (int64_t t = 0; t < p.count; t++) {
        const int16_t *x = o->pad + (base[0] + p.x[t]) * lanes;
        const int16_t *g = o->pad + (base[1] + p.g[t]) * lanes;
        int64_t z = base[2] + p.z[t];
        int16_t *to = m->pad + z * lanes;
        if (narrow)
            narrow_row(d, x, g, rq, to);
        else
            wide_row(d, x, g, lanes, z, rq, to);
        if (m->tracing)
            put_trace(m, trace_of(d->operation), z, to);
    }
    return 1;
}

#endif
