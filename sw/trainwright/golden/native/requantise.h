/* Round sums to words, bit for bit as ``trainwright.formats.rounding``, and count statistics. */
#ifndef TRAINWRIGHT_REQUANTISE_H
#define TRAINWRIGHT_REQUANTISE_H

#include <stdint.h>

#include "vector.h"

typedef struct {
    int shift, width;
    int stochastic;
    uint32_t stream;
    int64_t total, saturations; /* sum of |q|, and saturated values, of what was written */
    int64_t underflows;
} Requantiser;

/* Return the largest |sum| that requantise_narrow takes; negative if it takes none. */
static inline int64_t narrow_limit(const Requantiser *rq)
{
    if (rq->shift > 30)
        return -1;
    if (rq->stochastic)
        return INT32_MAX - ((int64_t)1 << rq->shift);
    return INT32_MAX - (rq->shift ? (int64_t)1 << (rq->shift - 1) : 0);
}

/* Saturate what sums are ``rounded`` to, an expression of the lane l, count it, and write it. */
#define PUT_ROUNDED(integer, rounded) \
    do { \
        const integer most = ((integer)1 << (rq->width - 1)) - 1, least = -most - 1; \
        integer total = 0, saturations = 0; \
        for (int l = 0; l < lanes; l++) { \
            integer v = (rounded), q = v < least ? least : v > most ? most : v; \
            saturations += q != v; \
            total += q < 0 ? -q : q; \
            out[l] = (int16_t)q; \
        } \
        rq->total += total; \
        rq->saturations += saturations; \
    } while (0)

/* Round half to even: add a little less than a half, and 1 if the floor is odd, then cut. ``odd`` is the
   mask of that last bit; a shift of 0 adds nothing. */
static inline void requantise_narrow(Requantiser *rq, const int32_t *sums, int lanes, int16_t *out)
{
    const int32_t shift = rq->shift, odd = shift != 0, below = shift ? (1 << (shift - 1)) - 1 : 0;
    PUT_ROUNDED(int32_t, (sums[l] + below + ((sums[l] >> shift) & odd)) >> shift);
}

/* Round sums of at most 62 bits and a sign, by shifts up to 63. */
static inline void requantise_wide(Requantiser *rq, const int64_t *sums, int lanes, int16_t *out)
{
    const int64_t odd = rq->shift != 0;
    const int64_t below = rq->shift ? ((int64_t)1 << (rq->shift - 1)) - 1 : 0;
    const int shift = rq->shift;
    PUT_ROUNDED(int64_t, (sums[l] + below + ((sums[l] >> shift) & odd)) >> shift);
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define WHOLE_ROWS

/* Round sums to words of 16 bits, which the caller limits to the width. v - least is from 0 to 2 half - 1
   for values of the width: higher bits, which ``outside`` gathers, mean that a value saturates. */
static INLINE __m256i rounded_words(const Requantiser *rq, Sums v, Sums *outside)
{
    const int half = 1 << (rq->width - 1);
    const __m128i shift = _mm_cvtsi32_si128(rq->shift);
    const __m512i odd = _mm512_set1_epi32(rq->shift != 0);
    const __m512i below = _mm512_set1_epi32(rq->shift ? (1 << (rq->shift - 1)) - 1 : 0);
    const __m512i least = _mm512_set1_epi32(-half), inside = _mm512_set1_epi32(2 * half - 1);
    const __m512i floor_odd = _mm512_and_si512(_mm512_sra_epi32(v, shift), odd);
    v = _mm512_sra_epi32(_mm512_add_epi32(_mm512_add_epi32(v, below), floor_odd), shift);
    /* outside | (v - least & ~inside) */
    *outside = _mm512_ternarylogic_epi32(*outside, _mm512_sub_epi32(v, least), inside, 0xf4);
    return _mm512_cvtsepi32_epi16(v);
}

static INLINE int any(Sums a) { return _mm512_test_epi32_mask(a, a) != 0; }

#elif defined(__AVX2__)
#define WHOLE_ROWS

static INLINE __m256i rounded_half(const Requantiser *rq, __m256i v, __m256i *outside)
{
    const int half = 1 << (rq->width - 1);
    const __m128i shift = _mm_cvtsi32_si128(rq->shift);
    const __m256i odd = _mm256_set1_epi32(rq->shift != 0);
    const __m256i below = _mm256_set1_epi32(rq->shift ? (1 << (rq->shift - 1)) - 1 : 0);
    const __m256i least = _mm256_set1_epi32(-half), inside = _mm256_set1_epi32(2 * half - 1);
    const __m256i floor_odd = _mm256_and_si256(_mm256_sra_epi32(v, shift), odd);
    v = _mm256_sra_epi32(_mm256_add_epi32(_mm256_add_epi32(v, below), floor_odd), shift);
    *outside = _mm256_or_si256(*outside, _mm256_andnot_si256(inside, _mm256_sub_epi32(v, least)));
    return v;
}

static INLINE __m256i rounded_words(const Requantiser *rq, Sums v, Sums *outside)
{
    __m256i low = rounded_half(rq, v.low, &outside->low);
    __m256i high = rounded_half(rq, v.high, &outside->high);
    /* packs interleaves the halves of both registers: put the quarters in order. */
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
}

static INLINE int any(Sums a)
{
    __m256i both = _mm256_or_si256(a.low, a.high);
    return !_mm256_testz_si256(both, both);
}

#endif

/* Round rows of 16 sums, none larger than narrow_limit(), and write row i to ``to`` + i * step. */
#if defined(WHOLE_ROWS)

/* Count the saturated values of rows again, one by one: few rows have any. Keep the total, which already
   includes these rows. */
static __attribute__((noinline, cold)) void count_saturated(Requantiser *rq, const Sums *sums,
                                                            int rows)
{
    int16_t unused[16];
    int32_t row[16];
    int64_t total = rq->total;
    for (int i = 0; i < rows; i++) {
        sums_store(row, sums[i]);
        requantise_narrow(rq, row, 16, unused);
    }
    rq->total = total;
}

static INLINE void requantise_sums(Requantiser *rq, const Sums *sums, int rows, int16_t *to,
                                   int64_t step)
{
    const int half = 1 << (rq->width - 1);
    const __m256i most = _mm256_set1_epi16((int16_t)(half - 1)), least = _mm256_set1_epi16((int16_t)-half);
    Sums outside = sums_zero();
    __m256i total = _mm256_setzero_si256();
    for (int i = 0; i < rows; i++) {
        __m256i q = rounded_words(rq, sums[i], &outside);
        q = _mm256_max_epi16(_mm256_min_epi16(q, most), least);
        _mm256_storeu_si256((__m256i *)(to + i * step), q);
        /* Times 1 or -1, and added in pairs: sums of |q|. */
        __m256i sign = _mm256_or_si256(_mm256_srai_epi16(q, 15), _mm256_set1_epi16(1));
        total = _mm256_add_epi32(total, _mm256_madd_epi16(q, sign));
    }
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    rq->total += _mm_cvtsi128_si32(four) + _mm_extract_epi32(four, 1);
    if (__builtin_expect(any(outside), 0))
        count_saturated(rq, sums, rows);
}

#else

static INLINE void requantise_sums(Requantiser *rq, const Sums *sums, int rows, int16_t *to,
                                   int64_t step)
{
    int32_t row[16];
    for (int i = 0; i < rows; i++) {
        sums_store(row, sums[i]);
        requantise_narrow(rq, row, 16, to + i * step);
    }
}

#endif

#endif
