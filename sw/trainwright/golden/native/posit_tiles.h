/* Compute tiles of descriptors with posits: exact sums, and their words. */
#ifndef TRAINWRIGHT_POSIT_TILES_H
#define TRAINWRIGHT_POSIT_TILES_H

#include "pack.h"
#include "posit_avx2.h"
#include "posit_vectors.h"

typedef struct {
    Machine *m;
    const Compute *d;
    const Operands *o;
    const int64_t *base;
    Requantiser *rq;
    Places sum;
    int64_t rows, lanes; /* rows of a full tile; lanes of a row */
    int64_t terms;       /* terms of each sum */
    int64_t step;        /* PE3: scalars from one term to the next */
    double scale;
#if POSIT_VECTORS || POSIT_AVX2
    Encoder *encoder; /* NULL if results are fixed point, or the format has more places than it takes */
#endif
} Decoded;

static inline int16_t *row_of(const Decoded *c, int64_t z) { return c->m->pad + z * c->lanes; }

static inline void trace_row(const Decoded *c, int64_t z)
{
    if (c->m->tracing)
        put_trace(c->m, trace_of(c->d->operation), z, row_of(c, z));
}

static void put_row_plain(const Decoded *c, int64_t z, const double *sums)
{
    const int lanes = (int)c->lanes;
    if (c->d->z_format) {
        encode_plain(&c->m->numbers[c->d->z_format], c->rq, c->d->underflow_zero != 0, c->scale, sums,
                     lanes, row_of(c, z));
    } else {
        int64_t wide[LANES];
        for (int l = 0; l < lanes; l++)
            wide[l] = (int64_t)sums[l];
        requantise_wide(c->rq, wide, lanes, row_of(c, z));
    }
    trace_row(c, z);
}

/* Return the scalars of row ``r`` of a tile, from its first term on. */
static inline const float *scalar_at(const Decoded *c, const float *scalars, int64_t r)
{
    return scalars + (by_entries(c->d) ? r * c->terms : r);
}

#if POSIT_VECTORS

/* List the scalars of TILE rows of a tile. Rows beyond the tile's last one repeat row ``r``. */
typedef struct {
    const float *at[TILE];
    int64_t step;
} Scalars;

static inline Scalars scalars_of(const Decoded *c, const float *scalars, int64_t r, int64_t rows)
{
    Scalars s = {.step = by_entries(c->d) ? 1 : c->step};
    for (int i = 0; i < TILE; i++)
        s.at[i] = scalar_at(c, scalars, r + i < rows ? r + i : r);
    return s;
}

/* Sum TILE rows in float32, twice as fast as in double. Return 0 if a sum was rounded on the way, by the
   processor's flag of inexact results: the caller then sums in double. */
static INLINE int add_floats(const Decoded *c, const float *v, const Scalars *s, const int64_t step,
                             __m512 *sums)
{
    __m512 sum[TILE];
    for (int i = 0; i < TILE; i++)
        sum[i] = _mm512_setzero_ps();
    for (int64_t k = 0; k < c->terms; k++, v += LANES) {
        const __m512 vector = _mm512_loadu_ps(v);
        for (int i = 0; i < TILE; i++)
            sum[i] = _mm512_fmadd_ps(vector, _mm512_set1_ps(s->at[i][k * step]), sum[i]);
    }
    for (int i = 0; i < TILE; i++) {
        __asm__ volatile("" : "+v"(sum[i])); /* the compiler may not move sums behind the read of the flag */
        sums[i] = sum[i];
    }
    return !rounded();
}

static void add_doubles(const Decoded *c, const float *v, const Scalars *s, __m512d *sums)
{
    __m512d sum[2 * TILE];
    for (int i = 0; i < 2 * TILE; i++)
        sum[i] = _mm512_setzero_pd();
    for (int64_t k = 0; k < c->terms; k++, v += LANES) {
        const __m512d low = _mm512_cvtps_pd(_mm256_loadu_ps(v));
        const __m512d high = _mm512_cvtps_pd(_mm256_loadu_ps(v + 8));
        for (int i = 0; i < TILE; i++) {
            const __m512d scalar = _mm512_set1_pd((double)s->at[i][k * s->step]);
            sum[2 * i] = _mm512_fmadd_pd(low, scalar, sum[2 * i]);
            sum[2 * i + 1] = _mm512_fmadd_pd(high, scalar, sum[2 * i + 1]);
        }
    }
    for (int i = 0; i < 2 * TILE; i++)
        sums[i] = sum[i];
}

static inline __m512d half_of(__m512 row, int upper)
{
    return _mm512_cvtps_pd(upper ? _mm512_extractf32x8_ps(row, 1) : _mm512_castps512_ps256(row));
}

static inline void put_doubles(const Decoded *c, int64_t z, __m512d low, __m512d high)
{
    if (c->encoder) {
        encode_doubles(c->encoder, low, high, _mm512_set1_ps((float)c->scale), row_of(c, z));
        trace_row(c, z);
        return;
    }
    double sums[LANES];
    _mm512_storeu_pd(sums, low);
    _mm512_storeu_pd(sums + 8, high);
    put_row_plain(c, z, sums);
}

static inline void put_floats(const Decoded *c, int64_t z, __m512 sums)
{
    if (c->encoder) {
        encode_floats(c->encoder, sums, _mm512_set1_ps((float)c->scale), row_of(c, z));
        trace_row(c, z);
        return;
    }
    put_doubles(c, z, half_of(sums, 0), half_of(sums, 1));
}

static inline void count_encoded(const Decoded *c)
{
    if (c->encoder)
        take_counts(c->encoder, c->rq);
}

static void decoded_tile(const Decoded *c, int64_t z, int64_t rows, const float *vectors,
                         const float *scalars)
{
    const int64_t stride = c->d->z_row_stride;
    for (int64_t r = 0; r < rows; r += TILE) {
        const int64_t count = rows - r < TILE ? rows - r : TILE;
        const Scalars s = scalars_of(c, scalars, r, rows);
        __m512 sums[TILE];
        /* A constant step of 1 lets the compiler read scalars without a multiplication. */
        if (by_entries(c->d) ? add_floats(c, vectors, &s, 1, sums)
                             : add_floats(c, vectors, &s, s.step, sums)) {
            for (int64_t i = 0; i < count; i++)
                put_floats(c, z + (r + i) * stride, sums[i]);
            continue;
        }
        __m512d wide[2 * TILE];
        add_doubles(c, vectors, &s, wide);
        for (int64_t i = 0; i < count; i++)
            put_doubles(c, z + (r + i) * stride, wide[2 * i], wide[2 * i + 1]);
        clear_rounded();
    }
    count_encoded(c);
}

#else

/* Write row ``r`` of a tile, summed in double. */
static void put_plain_sums(const Decoded *c, int64_t z, int64_t r, const float *vectors,
                           const float *scalars)
{
    const int64_t step = by_entries(c->d) ? 1 : c->step;
    double sums[LANES] = {0};
    const float *v = vectors, *s = scalar_at(c, scalars, r);
    for (int64_t k = 0; k < c->terms; k++, v += LANES, s += step)
        for (int l = 0; l < LANES; l++)
            sums[l] += (double)v[l] * *s;
    put_row_plain(c, z + r * c->d->z_row_stride, sums);
}

#if POSIT_AVX2

enum { ROWS = 4 };

/* Sum ``ROWS`` rows in halves of 8 lanes, in float32. Return 0 if a sum was rounded on the way. */
static INLINE int add_floats(const Decoded *c, const float *v, const float *const at[ROWS],
                             const int64_t step, __m256 *sums)
{
    __m256 sum[2 * ROWS];
    for (int i = 0; i < 2 * ROWS; i++)
        sum[i] = _mm256_setzero_ps();
    for (int64_t k = 0; k < c->terms; k++, v += LANES) {
        const __m256 low = _mm256_loadu_ps(v), high = _mm256_loadu_ps(v + 8);
        for (int i = 0; i < ROWS; i++) {
            const __m256 scalar = _mm256_broadcast_ss(at[i] + k * step);
            sum[2 * i] = _mm256_fmadd_ps(low, scalar, sum[2 * i]);
            sum[2 * i + 1] = _mm256_fmadd_ps(high, scalar, sum[2 * i + 1]);
        }
    }
    for (int i = 0; i < 2 * ROWS; i++) {
        __asm__ volatile("" : "+x"(sum[i])); /* the compiler may not move sums behind the read of the flag */
        sums[i] = sum[i];
    }
    return !rounded();
}

static inline void put_floats(const Decoded *c, int64_t z, __m256 low, __m256 high)
{
    if (c->encoder) {
        encode_floats(c->encoder, low, high, _mm256_set1_ps((float)c->scale), row_of(c, z));
        trace_row(c, z);
        return;
    }
    float floats[LANES];
    double sums[LANES];
    _mm256_storeu_ps(floats, low);
    _mm256_storeu_ps(floats + 8, high);
    for (int l = 0; l < LANES; l++)
        sums[l] = floats[l];
    put_row_plain(c, z, sums);
}

static void decoded_tile(const Decoded *c, int64_t z, int64_t rows, const float *vectors,
                         const float *scalars)
{
    for (int64_t r = 0; r < rows; r += ROWS) {
        const int64_t count = rows - r < ROWS ? rows - r : ROWS;
        const float *at[ROWS]; /* rows beyond the tile's last one have those of another row */
        __m256 sums[2 * ROWS];
        for (int i = 0; i < ROWS; i++)
            at[i] = scalar_at(c, scalars, i < count ? r + i : r);
        if (by_entries(c->d) ? add_floats(c, vectors, at, 1, sums)
                             : add_floats(c, vectors, at, c->step, sums)) {
            for (int64_t i = 0; i < count; i++)
                put_floats(c, z + (r + i) * c->d->z_row_stride, sums[2 * i], sums[2 * i + 1]);
            continue;
        }
        for (int64_t i = 0; i < count; i++)
            put_plain_sums(c, z, r + i, vectors, scalars);
        clear_rounded();
    }
    if (c->encoder)
        take_counts(c->encoder, c->rq);
}

#else

static void decoded_tile(const Decoded *c, int64_t z, int64_t rows, const float *vectors,
                         const float *scalars)
{
    for (int64_t r = 0; r < rows; r++)
        put_plain_sums(c, z, r, vectors, scalars);
}

#endif
#endif

#endif
