/* Decode and encode rows of 16 words, eight at a time, with the results of numbers.h, in AVX2. */
#ifndef TRAINWRIGHT_POSIT_AVX2_H
#define TRAINWRIGHT_POSIT_AVX2_H

#include "posit_vectors.h"

#if !POSIT_VECTORS && defined(__AVX2__) && defined(__FMA__)
#define POSIT_AVX2 1

typedef int Wrong; /* not 0 once a word stands for no number */

static inline __m256 integers_of(const Number *f, __m256i words, Wrong *wrong)
{
    if (!f->integers)
        return _mm256_cvtepi32_ps(words);
    const __m256i places = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    const __m256 found = _mm256_i32gather_ps(f->integers, places, 4);
    *wrong |= _mm256_movemask_ps(_mm256_cmp_ps(found, found, _CMP_UNORD_Q));
    return found;
}

static inline void decode_words(const Number *f, const int16_t *from, int count, float *out, Wrong *wrong)
{
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i words = _mm_loadu_si128((const __m128i *)(from + i));
        _mm256_storeu_ps(out + i, integers_of(f, _mm256_cvtepi16_epi32(words), wrong));
    }
    if (i < count)
        *wrong |= !decode_plain(f, from + i, count - i, out + i);
}

/* Split 16 pairs of words into lower and upper words. */
static inline void decode_pairs(const Number *f, const int32_t *pairs, float *lower, float *upper,
                                Wrong *wrong)
{
    for (int i = 0; i < LANES; i += 8) {
        const __m256i both = _mm256_loadu_si256((const __m256i *)(pairs + i));
        const __m256i low = _mm256_srai_epi32(_mm256_slli_epi32(both, 16), 16);
        _mm256_storeu_ps(lower + i, integers_of(f, low, wrong));
        _mm256_storeu_ps(upper + i, integers_of(f, _mm256_srai_epi32(both, 16), wrong));
    }
}

/* Constants of a format and a descriptor that encoding needs, and its statistics. */
typedef struct {
    const int *starts, *cuts;
    __m256i places, greatest, largest;
    __m256i total;
    int lanes;
    int64_t saturations, underflows;
} Encoder;

static inline Encoder encoder_of(const Number *f, int rule, int lanes)
{
    const float largest = (float)f->largest;
    int32_t size;
    memcpy(&size, &largest, sizeof size);
    return (Encoder){
        .starts = (const int *)f->registers + 32 * rule,
        .cuts = (const int *)f->registers + 64,
        .places = _mm256_set1_epi32((int)f->places - 1),
        .greatest = _mm256_set1_epi32((int)f->greatest),
        .largest = _mm256_set1_epi32(size),
        .total = _mm256_setzero_si256(),
        .lanes = lanes,
    };
}

static inline int ones_of(__m256i mask)
{
    return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}

/* Encode eight sums. */
static inline __m256i encode_eight(Encoder *e, __m256 sums, __m256 scale)
{
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi32(1);
    const __m256i unit = _mm256_set1_epi32(EXPONENT_BIAS << FRACTION_BITS);
    const __m256 size = _mm256_mul_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), sums), scale);
    const __m256i sizes = _mm256_castps_si256(size);
    __m256i at = _mm256_sub_epi32(_mm256_srli_epi32(sizes, FRACTION_BITS),
                                  _mm256_set1_epi32(EXPONENT_BIAS + LEAST_EXPONENT));
    at = _mm256_min_epi32(_mm256_max_epi32(at, zero), e->places);
    const __m256i cut = _mm256_i32gather_epi32(e->cuts, at, 4);
    const __m256i fraction = _mm256_and_si256(sizes, _mm256_set1_epi32((1 << FRACTION_BITS) - 1));
    __m256i word = _mm256_add_epi32(_mm256_i32gather_epi32(e->starts, at, 4), fraction);
    const __m256i odd = _mm256_and_si256(_mm256_srlv_epi32(word, cut), one);
    const __m256i half = _mm256_sllv_epi32(one, _mm256_sub_epi32(cut, one));
    word = _mm256_add_epi32(_mm256_add_epi32(word, odd), _mm256_sub_epi32(half, one));
    word = _mm256_min_epu32(_mm256_srlv_epi32(word, cut), e->greatest);
    const __m256i there = _mm256_cmpgt_epi32(sizes, zero);
    word = _mm256_and_si256(word, there);
    e->total = _mm256_add_epi32(e->total, word);
    e->saturations += ones_of(_mm256_cmpgt_epi32(sizes, e->largest));
    e->underflows += ones_of(_mm256_and_si256(there, _mm256_cmpgt_epi32(unit, sizes)));
    const __m256i negative = _mm256_srai_epi32(_mm256_castps_si256(sums), 31);
    return _mm256_sub_epi32(_mm256_xor_si256(word, negative), negative);
}

static inline void encode_floats(Encoder *e, __m256 low, __m256 high, __m256 scale, int16_t *out)
{
    const __m256i first = encode_eight(e, low, scale), second = encode_eight(e, high, scale);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xd8);
    int16_t row[LANES];
    _mm256_storeu_si256((__m256i *)(e->lanes == LANES ? out : row), words);
    if (e->lanes < LANES)
        memcpy(out, row, (size_t)e->lanes * sizeof *out);
}

/* Add the statistics to the descriptor's, and reset them. */
static inline void take_counts(Encoder *e, Requantiser *rq)
{
    int32_t totals[8];
    _mm256_storeu_si256((__m256i *)totals, e->total);
    for (int i = 0; i < 8; i++)
        rq->total += totals[i];
    rq->saturations += e->saturations;
    rq->underflows += e->underflows;
    e->total = _mm256_setzero_si256();
    e->saturations = e->underflows = 0;
}

#endif
#endif
