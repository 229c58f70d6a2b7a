/* Add products of pairs of 16-bit integers to sixteen sums of 32 bits.
 *
 * AVX-512, AVX2 and plain C give the same bits. Sums wrap at 2^32; the callers prove that the sums
 * they keep do not.
 */
#ifndef TRAINWRIGHT_VECTOR_H
#define TRAINWRIGHT_VECTOR_H

#include <stdint.h>
#include <string.h>

#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512BW__) || defined(__AVX2__)
#include <immintrin.h>
#endif

static inline int32_t pair_at(const int16_t *words)
{
    int32_t pair;
    memcpy(&pair, words, sizeof pair);
    return pair;
}

#if defined(__AVX512BW__)

typedef __m512i Sums;

enum { TOGETHER = 8 }; /* rows of sums that fit in registers next to their operands */

static inline Sums sums_zero(void) { return _mm512_setzero_si512(); }
static inline Sums sums_load(const int32_t *from) { return _mm512_loadu_si512(from); }
static inline void sums_store(int32_t *to, Sums a) { _mm512_storeu_si512(to, a); }

static inline Sums sums_of_words(const int16_t *from)
{
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)from));
}

/* Return x * 2^x_shift + y * 2^y_shift. */
static inline Sums sums_plus(Sums x, int x_shift, Sums y, int y_shift)
{
    return _mm512_add_epi32(_mm512_sll_epi32(x, _mm_cvtsi32_si128(x_shift)),
                            _mm512_sll_epi32(y, _mm_cvtsi32_si128(y_shift)));
}

/* Return x where y > 0, else 0. */
static inline Sums sums_where(Sums x, Sums y)
{
    return _mm512_maskz_mov_epi32(_mm512_cmpgt_epi32_mask(y, _mm512_setzero_si512()), x);
}

/* Add pairs[l].low * scalar.low + pairs[l].high * scalar.high to sum[l]. */
static inline Sums sums_dot(Sums sum, Sums pairs, int32_t scalar)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sum, pairs, _mm512_set1_epi32(scalar));
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi32(scalar)));
#endif
}

#elif defined(__AVX2__)

typedef struct {
    __m256i low, high;
} Sums;

enum { TOGETHER = 4 };

static inline Sums sums_zero(void)
{
    return (Sums){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

static inline Sums sums_load(const int32_t *from)
{
    return (Sums){_mm256_loadu_si256((const __m256i *)from),
                  _mm256_loadu_si256((const __m256i *)from + 1)};
}

static inline void sums_store(int32_t *to, Sums a)
{
    _mm256_storeu_si256((__m256i *)to, a.low);
    _mm256_storeu_si256((__m256i *)to + 1, a.high);
}

static inline Sums sums_of_words(const int16_t *from)
{
    return (Sums){_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)from)),
                  _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)from + 1))};
}

static inline Sums sums_plus(Sums x, int x_shift, Sums y, int y_shift)
{
    const __m128i first = _mm_cvtsi32_si128(x_shift), second = _mm_cvtsi32_si128(y_shift);
    return (Sums){
        _mm256_add_epi32(_mm256_sll_epi32(x.low, first), _mm256_sll_epi32(y.low, second)),
        _mm256_add_epi32(_mm256_sll_epi32(x.high, first), _mm256_sll_epi32(y.high, second))};
}

static inline Sums sums_where(Sums x, Sums y)
{
    const __m256i zero = _mm256_setzero_si256();
    return (Sums){_mm256_and_si256(x.low, _mm256_cmpgt_epi32(y.low, zero)),
                  _mm256_and_si256(x.high, _mm256_cmpgt_epi32(y.high, zero))};
}

static inline Sums sums_dot(Sums sum, Sums pairs, int32_t scalar)
{
    __m256i s = _mm256_set1_epi32(scalar);
    return (Sums){_mm256_add_epi32(sum.low, _mm256_madd_epi16(pairs.low, s)),
                  _mm256_add_epi32(sum.high, _mm256_madd_epi16(pairs.high, s))};
}

#else

typedef struct {
    uint32_t at[16];
} Sums;

enum { TOGETHER = 4 };

static inline Sums sums_zero(void) { return (Sums){{0}}; }

static inline Sums sums_load(const int32_t *from)
{
    Sums a;
    memcpy(a.at, from, sizeof a.at);
    return a;
}

static inline void sums_store(int32_t *to, Sums a) { memcpy(to, a.at, sizeof a.at); }

static inline Sums sums_of_words(const int16_t *from)
{
    Sums a;
    for (int l = 0; l < 16; l++)
        a.at[l] = (uint32_t)from[l];
    return a;
}

static inline Sums sums_plus(Sums x, int x_shift, Sums y, int y_shift)
{
    for (int l = 0; l < 16; l++)
        x.at[l] = (x.at[l] << x_shift) + (y.at[l] << y_shift);
    return x;
}

static inline Sums sums_where(Sums x, Sums y)
{
    for (int l = 0; l < 16; l++)
        x.at[l] &= -(uint32_t)((int32_t)y.at[l] > 0);
    return x;
}

static inline Sums sums_dot(Sums sum, Sums pairs, int32_t scalar)
{
    int32_t low = (int16_t)scalar, high = scalar >> 16;
    for (int l = 0; l < 16; l++)
        sum.at[l] += (uint32_t)((int16_t)pairs.at[l] * low) +
                     (uint32_t)(((int32_t)pairs.at[l] >> 16) * high);
    return sum;
}

#endif

/* Transpose 16 entries of 16 words, ``step`` words apart: out[k][l] = words 2k, 2k + 1 of entry l. */
static inline void transpose_pairs(const int16_t *entries, int64_t step, int32_t *out)
{
#if defined(__AVX512BW__)
    const __m512i even = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
    const __m512i odd = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    __m512i a[8], b[8], c[8];
    for (int j = 0; j < 8; j++) { /* entry j below, entry j + 8 above */
        __m256i low = _mm256_loadu_si256((const __m256i *)(entries + j * step));
        __m256i high = _mm256_loadu_si256((const __m256i *)(entries + (j + 8) * step));
        a[j] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    for (int j = 0; j < 4; j++) {
        b[2 * j] = _mm512_unpacklo_epi32(a[2 * j], a[2 * j + 1]);
        b[2 * j + 1] = _mm512_unpackhi_epi32(a[2 * j], a[2 * j + 1]);
    }
    for (int j = 0; j < 2; j++) {
        for (int h = 0; h < 2; h++) { /* dword 2h and 2h + 1 of every 128 bits, four entries */
            c[4 * j + 2 * h] = _mm512_unpacklo_epi64(b[4 * j + h], b[4 * j + 2 + h]);
            c[4 * j + 2 * h + 1] = _mm512_unpackhi_epi64(b[4 * j + h], b[4 * j + 2 + h]);
        }
    }
    for (int k = 0; k < 4; k++) {
        _mm512_storeu_si512(out + 16 * k, _mm512_permutex2var_epi64(c[k], even, c[4 + k]));
        _mm512_storeu_si512(out + 16 * (k + 4), _mm512_permutex2var_epi64(c[k], odd, c[4 + k]));
    }
#elif defined(__AVX2__)
    for (int half = 0; half < 16; half += 8) { /* a square of 8 pairs of 8 entries */
        __m256i a[8], b[8], c[8];
        for (int j = 0; j < 8; j++)
            a[j] = _mm256_loadu_si256((const __m256i *)(entries + (half + j) * step));
        for (int j = 0; j < 8; j += 2) {
            b[j] = _mm256_unpacklo_epi32(a[j], a[j + 1]);
            b[j + 1] = _mm256_unpackhi_epi32(a[j], a[j + 1]);
        }
        for (int j = 0; j < 8; j += 4) {
            for (int h = 0; h < 2; h++) {
                c[j + 2 * h] = _mm256_unpacklo_epi64(b[j + h], b[j + 2 + h]);
                c[j + 2 * h + 1] = _mm256_unpackhi_epi64(b[j + h], b[j + 2 + h]);
            }
        }
        for (int k = 0; k < 4; k++) {
            __m256i *to = (__m256i *)(out + 16 * k + half);
            _mm256_storeu_si256(to, _mm256_permute2x128_si256(c[k], c[k + 4], 0x20));
            _mm256_storeu_si256(to + 8, _mm256_permute2x128_si256(c[k], c[k + 4], 0x31));
        }
    }
#else
    for (int k = 0; k < 8; k++)
        for (int l = 0; l < 16; l++)
            out[16 * k + l] = pair_at(entries + l * step + 2 * k);
#endif
}

#endif
