/* Decode and encode rows of 16 words with the results of numbers.h, in AVX-512. */
#ifndef TRAINWRIGHT_POSIT_VECTORS_H
#define TRAINWRIGHT_POSIT_VECTORS_H

#include "numbers.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>

/* Flag that floats raise if a result is rounded: sums without the flag are exact. */
static inline unsigned rounded(void) { return _mm_getcsr() & _MM_EXCEPT_INEXACT; }
static inline void clear_rounded(void)
{
    _mm_setcsr(_mm_getcsr() & ~_MM_EXCEPT_INEXACT);
    __asm__ volatile("" ::: "memory"); /* no sum begins before */
}
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define POSIT_VECTORS 1

typedef __mmask32 Wrong; /* not 0 once a word stands for no number */

/* Decode 32 words of up to 8 bits to upper halves of floats; ``wrong`` masks words that are no number. */
static inline __m512i upper_halves(const Number *f, __m512i words, Wrong *wrong)
{
#if defined(__AVX512VBMI__)
    const __m512i sizes = _mm512_abs_epi16(words);
    const __m512i at = _mm512_or_si512(sizes, _mm512_slli_epi16(sizes, 8));
    const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(f->upper), at,
                                                 _mm512_loadu_si512(f->upper + 64));
    const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(f->upper + 128), at,
                                                  _mm512_loadu_si512(f->upper + 192));
    const __m512i found = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, low, high);
    *wrong |= _mm512_cmpgt_epu16_mask(sizes, _mm512_set1_epi16((int16_t)f->greatest));
    return _mm512_ternarylogic_epi32(found, words, _mm512_set1_epi16(INT16_MIN), 0xf8);
#else
    (void)f, (void)wrong;
    return words;
#endif
}

static inline int by_bytes(const Number *f)
{
#if defined(__AVX512VBMI__)
    return f->upper != NULL;
#else
    (void)f;
    return 0;
#endif
}

static inline __m512 gathered(const Number *f, __m512i words, Wrong *wrong)
{
    const __m512 found = _mm512_i32gather_ps(words, f->integers, 4);
    *wrong |= _mm512_cmp_ps_mask(found, found, _CMP_UNORD_Q);
    return found;
}

/* Load ``count`` words of a row, and zeros behind them. */
static inline __m512 decode_row(const Number *f, const int16_t *from, int count, Wrong *wrong)
{
    const __m256i words = _mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), from);
    if (!f->integers)
        return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(words));
    if (!by_bytes(f))
        return gathered(f, _mm512_cvtepu16_epi32(words), wrong);
    const __m256i halves = _mm512_castsi512_si256(upper_halves(f, _mm512_zextsi256_si512(words), wrong));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

static inline void decode_words(const Number *f, const int16_t *from, int count, float *out, Wrong *wrong)
{
    _mm512_mask_storeu_ps(out, (__mmask16)((1u << count) - 1), decode_row(f, from, count, wrong));
}

/* Split 16 pairs of words into lower and upper words. */
static inline void decode_pairs(const Number *f, const int32_t *from, float *lower, float *upper,
                                Wrong *wrong)
{
    const __m512i pairs = _mm512_loadu_si512(from);
    __m512 low, high;
    if (!f->integers) {
        low = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16));
        high = _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 16));
    } else if (!by_bytes(f)) {
        low = gathered(f, _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff)), wrong);
        high = gathered(f, _mm512_srli_epi32(pairs, 16), wrong);
    } else {
        const __m512i halves = upper_halves(f, pairs, wrong);
        low = _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
        high = _mm512_castsi512_ps(_mm512_and_si512(halves, _mm512_set1_epi32(-65536)));
    }
    _mm512_storeu_ps(lower, low);
    _mm512_storeu_ps(upper, high);
}

/* Constants of a format and a descriptor that encoding needs, in registers, and its statistics. */
typedef struct {
    __m512i start[2], cut[2];
    __m512i places, greatest, largest;
    __m512i total;
    __mmask16 lanes;
    int64_t saturations, underflows;
} Encoder;

static inline Encoder encoder_of(const Number *f, int rule, int lanes)
{
    const uint32_t *starts = f->registers + 32 * rule, *cuts = f->registers + 64;
    const float largest = (float)f->largest;
    int32_t size;
    memcpy(&size, &largest, sizeof size);
    return (Encoder){
        .start = {_mm512_loadu_si512(starts), _mm512_loadu_si512(starts + 16)},
        .cut = {_mm512_loadu_si512(cuts), _mm512_loadu_si512(cuts + 16)},
        .places = _mm512_set1_epi32((int)f->places - 1),
        .greatest = _mm512_set1_epi32((int)f->greatest),
        .largest = _mm512_set1_epi32(size),
        .total = _mm512_setzero_si512(),
        .lanes = (__mmask16)((1u << lanes) - 1),
    };
}

/* Encode 16 words from sizes (bits of floats) and a mask of the negative ones. */
static inline void encode_sizes(Encoder *e, __m512i sizes, __mmask16 negative, int16_t *out)
{
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i unit = _mm512_set1_epi32(EXPONENT_BIAS << FRACTION_BITS);
    __m512i at = _mm512_sub_epi32(_mm512_srli_epi32(sizes, FRACTION_BITS),
                                  _mm512_set1_epi32(EXPONENT_BIAS + LEAST_EXPONENT));
    at = _mm512_min_epi32(_mm512_max_epi32(at, _mm512_setzero_si512()), e->places);
    const __m512i cut = _mm512_permutex2var_epi32(e->cut[0], at, e->cut[1]);
    const __m512i fraction = _mm512_and_si512(sizes, _mm512_set1_epi32((1 << FRACTION_BITS) - 1));
    __m512i word = _mm512_add_epi32(_mm512_permutex2var_epi32(e->start[0], at, e->start[1]), fraction);
    const __m512i odd = _mm512_and_si512(_mm512_srlv_epi32(word, cut), one);
    const __m512i half = _mm512_sllv_epi32(one, _mm512_sub_epi32(cut, one));
    word = _mm512_add_epi32(_mm512_add_epi32(word, odd), _mm512_sub_epi32(half, one));
    word = _mm512_min_epu32(_mm512_srlv_epi32(word, cut), e->greatest);
    const __mmask16 there = _mm512_mask_test_epi32_mask(e->lanes, sizes, sizes);
    word = _mm512_maskz_mov_epi32(there, word);
    e->total = _mm512_add_epi32(e->total, word);
    e->saturations += __builtin_popcount(_mm512_mask_cmpgt_epi32_mask(there, sizes, e->largest));
    e->underflows += __builtin_popcount(_mm512_mask_cmplt_epi32_mask(there, sizes, unit));
    word = _mm512_mask_sub_epi32(word, negative, _mm512_setzero_si512(), word);
    _mm256_mask_storeu_epi16(out, e->lanes, _mm512_cvtepi32_epi16(word));
}

static inline void encode_floats(Encoder *e, __m512 sums, __m512 scale, int16_t *out)
{
    const __mmask16 negative = _mm512_cmp_ps_mask(sums, _mm512_setzero_ps(), _CMP_LT_OQ);
    encode_sizes(e, _mm512_castps_si512(_mm512_mul_ps(_mm512_abs_ps(sums), scale)), negative, out);
}

/* Cut eight float64 to floats, and set the last bit of each inexact one. */
static inline __m256i cut_to_floats(__m512d sums)
{
    const __m256 cut = _mm512_cvt_roundpd_ps(sums, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), sums, _CMP_NEQ_UQ);
    return _mm256_mask_or_epi32(_mm256_castps_si256(cut), inexact, _mm256_castps_si256(cut),
                                _mm256_set1_epi32(1));
}

static inline void encode_doubles(Encoder *e, __m512d low, __m512d high, __m512 scale, int16_t *out)
{
    const __m512i both =
        _mm512_inserti64x4(_mm512_castsi256_si512(cut_to_floats(low)), cut_to_floats(high), 1);
    encode_floats(e, _mm512_castsi512_ps(both), scale, out);
}

/* Add the statistics to the descriptor's, and reset them. */
static inline void take_counts(Encoder *e, Requantiser *rq)
{
    rq->total += _mm512_reduce_add_epi32(e->total);
    rq->saturations += e->saturations;
    rq->underflows += e->underflows;
    e->total = _mm512_setzero_si512();
    e->saturations = e->underflows = 0;
}

#endif
#endif
