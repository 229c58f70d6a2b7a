/* Re-quantisation of sums, ``ttforge.fixed.requantise`` bit for bit, with its statistics. */
#ifndef TTFORGE_REQUANTISE_H
#define TTFORGE_REQUANTISE_H

#include <stdint.h>

typedef struct {
    int shift, width;
    int64_t total, saturations; /* sum of |q|, and saturated values, of what was written */
} Requantiser;

/* The largest |sum| that requantise_narrow takes; less than 0: none. */
static inline int64_t narrow_limit(const Requantiser *rq)
{
    if (rq->shift > 30)
        return -1;
    return INT32_MAX - (rq->shift ? (int64_t)1 << (rq->shift - 1) : 0);
}

static inline void requantise_narrow(Requantiser *rq, const int32_t *sums, int lanes, int16_t *out)
{
    const int32_t most = (1 << (rq->width - 1)) - 1, least = -most - 1, shift = rq->shift;
    const int32_t odd = shift != 0, below = shift ? (1 << (shift - 1)) - 1 : 0;
    int32_t total = 0, saturations = 0;
    for (int l = 0; l < lanes; l++) {
        int32_t v = sums[l], rounded = (v + below + ((v >> shift) & odd)) >> shift;
        int32_t q = rounded < least ? least : rounded > most ? most : rounded;
        saturations += q != rounded;
        total += q < 0 ? -q : q;
        out[l] = (int16_t)q;
    }
    rq->total += total;
    rq->saturations += saturations;
}

/* Sums of at most 62 bits and a sign, shifts up to 63. */
static inline void requantise_wide(Requantiser *rq, const int64_t *sums, int lanes, int16_t *out)
{
    const int64_t most = ((int64_t)1 << (rq->width - 1)) - 1, least = -most - 1;
    const int64_t odd = rq->shift != 0;
    const int64_t below = rq->shift ? ((int64_t)1 << (rq->shift - 1)) - 1 : 0;
    const int shift = rq->shift;
    int64_t total = 0, saturations = 0;
    for (int l = 0; l < lanes; l++) {
        int64_t v = sums[l], rounded = (v + below + ((v >> shift) & odd)) >> shift;
        int64_t q = rounded < least ? least : rounded > most ? most : rounded;
        saturations += q != rounded;
        total += q < 0 ? -q : q;
        out[l] = (int16_t)q;
    }
    rq->total += total;
    rq->saturations += saturations;
}

#endif
