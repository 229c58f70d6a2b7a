/* Posits: words to integers by a table, exact sums to words by their float exponents.
 *
 * Tables come from ``trainwright.formats`` (``trainwright.golden.tables``, which says what they
 * hold). A sum's *size* is |sum| / 2^shift as the bits of a float32, cut, the last bit set where
 * that was inexact. Bodies of one row of up to 16 words; those of AVX-512 are in
 * posit_vectors.h, those of AVX2 in posit_avx2.h.
 */
#ifndef TRAINWRIGHT_NUMBERS_H
#define TRAINWRIGHT_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "requantise.h"

enum { LANES = 16, FRACTION_BITS = 23, LEAST_EXPONENT = -2, EXPONENT_BIAS = 127 };

/* Decoding and encoding tables of a number format; all zero for fixed point, whose words are integers. */
typedef struct {
    const float *integers;     /* (65536) by word, as uint16; NaN where it stands for no number */
    const int64_t *starts[2];  /* (places) by rule */
    const int64_t *cuts;       /* (places) */
    int64_t places, greatest;  /* greatest word */
    double largest;            /* its integer */
    const uint32_t *registers; /* (3, 32) starts of both rules and cuts, or NULL */
    const uint8_t *upper;      /* (2, 128) bytes of the integers' upper halves, or NULL */
} Number;

/* Decode words to integers. Returns 0 if a word stands for no number. */
static inline int decode_plain(const Number *f, const int16_t *words, int count, float *out)
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

static inline int64_t size_of(double sum, double scale)
{
    enum { DROPPED = 52 - FRACTION_BITS };
    const double scaled = fabs(sum) * scale;
    int64_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    int64_t cut = bits >> DROPPED | ((bits & (((int64_t)1 << DROPPED) - 1)) != 0);
    return bits ? cut - ((int64_t)(1023 - EXPONENT_BIAS) << FRACTION_BITS) : 0;
}

/* Encode a sum. ``scale`` is 2^-shift; ``rule`` is 1 if sizes below the smallest word may become 0. */
static inline void encode_plain(const Number *f, Requantiser *rq, int rule, double scale,
                                const double *sums, int lanes, int16_t *out)
{
    const int64_t largest = size_of(f->largest, 1), one = size_of(1, 1);
    for (int l = 0; l < lanes; l++) {
        const int64_t size = size_of(sums[l], scale);
        int64_t at = (size >> FRACTION_BITS) - (EXPONENT_BIAS + LEAST_EXPONENT);
        at = at < 0 ? 0 : at >= f->places ? f->places - 1 : at;
        const int64_t exact = f->starts[rule][at] + (size & ((1 << FRACTION_BITS) - 1)), cut = f->cuts[at];
        int64_t word = (exact + ((int64_t)1 << (cut - 1)) - 1 + (exact >> cut & 1)) >> cut;
        word = !size ? 0 : word > f->greatest ? f->greatest : word;
        rq->total += word;
        rq->saturations += size > largest;
        rq->underflows += size && size < one;
        out[l] = (int16_t)(sums[l] < 0 ? -word : word);
    }
}

#endif
