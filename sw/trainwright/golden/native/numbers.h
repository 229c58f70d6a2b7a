/* Posits: words to integers by a table, exact sums to words by a table of bounds.
 *
 * Tables come from ``trainwright.formats`` (``trainwright.golden.tables``). A sum's size, divided by
 * 2^shift, is looked up by its float64 exponent and the first bits of its fraction; among the sizes
 * that share these lies one bound between words at most.
 */
#ifndef TRAINWRIGHT_NUMBERS_H
#define TRAINWRIGHT_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "requantise.h"

enum { LANES = 16, FRACTION_BITS = 52 };

/* Of fixed point all zero: its words are their own integers. */
typedef struct {
    const float *integers;     /* (65536) by word, as uint16; NaN where it stands for no number */
    int64_t kept;              /* bits of a fraction that are looked up */
    int64_t first, count;      /* exponent and fraction of place 0, and places */
    double largest;            /* integer of the largest word */
    const double *bounds[2];   /* (count) by rule: the least size of the next word */
    const int64_t *words[2];   /* (count) by rule: the word of the least size of the place */
} Number;

/* The integers of some words; 0 where one stands for no number. */
static inline int decode(const Number *f, const int16_t *words, int count, double *out)
{
    int wrong = 0;
    if (!f->integers) {
        for (int i = 0; i < count; i++)
            out[i] = words[i];
        return 1;
    }
    for (int i = 0; i < count; i++) {
        float integer = f->integers[(uint16_t)words[i]];
        wrong |= integer != integer;
        out[i] = integer;
    }
    return !wrong;
}

/* ``scale`` is 2^-shift, ``rule`` 1 where sizes below the smallest word may become 0. */
static inline void encode(const Number *f, Requantiser *rq, int rule, double scale, const double *sums,
                          int lanes, int16_t *out)
{
    const double *bounds = f->bounds[rule], largest = f->largest;
    const int64_t *words = f->words[rule], last = f->count - 1, first = f->first;
    const int drop = FRACTION_BITS - (int)f->kept;
    int64_t total = 0, saturations = 0, underflows = 0;
    double sizes[LANES];
    int64_t places[LANES], found[LANES];
    for (int l = 0; l < lanes; l++)
        sizes[l] = fabs(sums[l]) * scale;
    memcpy(places, sizes, (size_t)lanes * sizeof(double));
    for (int l = 0; l < lanes; l++) {
        int64_t at = (places[l] >> drop) - first;
        at = at < 0 ? 0 : at > last ? last : at;
        found[l] = words[at] + (sizes[l] >= bounds[at]);
    }
    for (int l = 0; l < lanes; l++) {
        total += found[l];
        saturations += sizes[l] > largest;
        underflows += (sizes[l] > 0) & (sizes[l] < 1);
        out[l] = (int16_t)(sums[l] < 0 ? -found[l] : found[l]);
    }
    rq->total += total;
    rq->saturations += saturations;
    rq->underflows += underflows;
}

#endif
