/* Descriptors with posits: integers of the words in float64, in which sums below 2^53 are exact.
 *
 * As in contract.h a tile is the outer product, term by term, of *vectors* along the lanes (entries
 * of PE1 and PE4, rows of x of PE2 and PE3) and *scalars*, one a row.
 */
#ifndef TRAINWRIGHT_DECODED_H
#define TRAINWRIGHT_DECODED_H

#include "contract.h"
#include "numbers.h"

enum { MOST_SCALAR_BYTES = 1 << 18 };

typedef struct {
    Machine *m;
    const Descriptor *d;
    const Operands *o;
    const int64_t *base;
    Requantiser *rq;
    Places sum;
    int64_t rows, lanes; /* of a whole tile */
    int64_t terms;       /* of a sum */
    int64_t step;        /* scalars from one term to the next */
    double scale;
} Decoded;

/* 0, and noted for the host, where a word stands for no number of its format. */
static inline int integers(Machine *m, int64_t format, const int16_t *words, int count, double *out)
{
    if (decode(&m->numbers[format], words, count, out))
        return 1;
    for (int i = 0; i < count; i++)
        if (out[i] != out[i])
            m->wrong_word = words[i];
    m->wrong_format = format;
    return 0;
}

static inline void put_decoded(const Decoded *c, int64_t z, const double *sums)
{
    int16_t *to = c->m->pad + z * c->lanes;
    const int lanes = (int)c->lanes;
    if (c->d->z_format) {
        encode(&c->m->numbers[c->d->z_format], c->rq, c->d->underflow_zero != 0, c->scale, sums, lanes, to);
    } else {
        int64_t wide[LANES];
        for (int l = 0; l < lanes; l++)
            wide[l] = (int64_t)sums[l];
        requantise_wide(c->rq, wide, lanes, to);
    }
    if (c->m->tracing)
        put_trace(c->m, by_entries(c->d) ? TRACE_PE1 : TRACE_PE2, z, to);
}

/* (terms, LANES): of entries transposed, or of rows of x. */
static int decode_vectors(const Decoded *c, int64_t at, double *out)
{
    const int lanes = (int)c->lanes;
    double words[LANES];
    for (int64_t k = 0; k < c->sum.count; k++) {
        if (!by_entries(c->d)) {
            const int16_t *row = c->o->x + (at + c->sum.x[k]) * lanes;
            if (!integers(c->m, c->d->x_format, row, lanes, out + k * LANES))
                return 0;
            continue;
        }
        const int16_t *entry = c->o->g + (at + c->sum.g[k]) * c->o->g_words;
        for (int l = 0; l < lanes; l++, entry += c->o->entry_step) {
            if (!integers(c->m, c->d->g_format, entry, lanes, words))
                return 0;
            for (int i = 0; i < lanes; i++)
                out[(k * lanes + i) * LANES + l] = words[i];
        }
    }
    return 1;
}

/* (terms, step): of ``rows`` rows of x, or of g. */
static int decode_scalars(const Decoded *c, int64_t at, int64_t rows, double *out)
{
    const int lanes = (int)c->lanes;
    double words[LANES];
    for (int64_t k = 0; k < c->sum.count; k++) {
        if (!by_entries(c->d)) {
            const int16_t *from = c->o->g + (at + c->sum.g[k]) * c->o->g_words;
            if (!integers(c->m, c->d->g_format, from, (int)c->rows, out + k * c->step))
                return 0;
            continue;
        }
        for (int64_t r = 0; r < rows; r++) {
            const int16_t *row = c->o->x + (at + r * c->d->x_row_stride + c->sum.x[k]) * lanes;
            if (!integers(c->m, c->d->x_format, row, lanes, words))
                return 0;
            for (int i = 0; i < lanes; i++)
                out[(k * lanes + i) * c->step + r] = words[i];
        }
    }
    return 1;
}

#if defined(__AVX512F__)

static INLINE void add_decoded(const Decoded *c, const double *v, const double *s, double *sums)
{
    __m512d low[TILE], high[TILE];
    for (int r = 0; r < TILE; r++)
        low[r] = high[r] = _mm512_setzero_pd();
    for (int64_t k = 0; k < c->terms; k++, v += LANES, s += c->step) {
        const __m512d first = _mm512_loadu_pd(v), second = _mm512_loadu_pd(v + 8);
        for (int r = 0; r < TILE; r++) {
            const __m512d scalar = _mm512_set1_pd(s[r]);
            low[r] = _mm512_fmadd_pd(first, scalar, low[r]);
            high[r] = _mm512_fmadd_pd(second, scalar, high[r]);
        }
    }
    for (int r = 0; r < TILE; r++) {
        _mm512_storeu_pd(sums + r * LANES, low[r]);
        _mm512_storeu_pd(sums + r * LANES + 8, high[r]);
    }
}

#else

static INLINE void add_decoded(const Decoded *c, const double *v, const double *s, double *sums)
{
    double sum[TILE][LANES] = {{0}};
    for (int64_t k = 0; k < c->terms; k++, v += LANES, s += c->step)
        for (int r = 0; r < TILE; r++)
            for (int l = 0; l < LANES; l++)
                sum[r][l] += v[l] * s[r];
    memcpy(sums, sum, sizeof sum);
}

#endif

static void decoded_tile(const Decoded *c, int64_t z, int64_t rows, const double *vectors,
                         const double *scalars)
{
    for (int64_t r = 0; r < rows; r += TILE) {
        double sums[TILE * LANES];
        add_decoded(c, vectors, scalars + r, sums);
        for (int64_t i = 0; i < TILE && r + i < rows; i++)
            put_decoded(c, z + (r + i) * c->d->z_row_stride, sums + i * LANES);
    }
}

/* The tiles of index ``b`` of the levels that move both operands. */
static int decoded_tiles(const Decoded *c, const Split *s, int64_t b, int64_t block, double *vectors,
                         double *scalars)
{
    const int entries = by_entries(c->d);
    const Places *along = entries ? &s->second : &s->first, *down = entries ? &s->first : &s->second;
    const int64_t vector_at = entries ? c->base[1] + s->both.g[b] : c->base[0] + s->both.x[b];
    const int64_t scalar_at = entries ? c->base[0] + s->both.x[b] : c->base[1] + s->both.g[b];
    const int64_t set = c->terms * c->step;
    for (int64_t start = 0; start < down->count; start += block) {
        const int64_t stop = start + block < down->count ? start + block : down->count;
        for (int64_t i = start; i < stop; i++) {
            const int64_t at = scalar_at + (entries ? down->x[i] : down->g[i]);
            const int64_t rows = s->both.last[b] | down->last[i] ? c->d->last_rows : c->rows;
            if (!decode_scalars(c, at, rows, scalars + (i - start) * set))
                return 0;
        }
        for (int64_t n = 0; n < along->count; n++) {
            if (!decode_vectors(c, vector_at + (entries ? along->g[n] : along->x[n]), vectors))
                return 0;
            for (int64_t i = start; i < stop; i++) {
                const int last = (s->both.last[b] | down->last[i] | along->last[n]) != 0;
                const int64_t z = c->base[2] + s->both.z[b] + down->z[i] + along->z[n];
                decoded_tile(c, z, last ? c->d->last_rows : c->rows, vectors,
                             scalars + (i - start) * set);
            }
        }
    }
    return 1;
}

static int decoded_contraction(Decoded *c)
{
    Split s;
    Machine *m = c->m;
    if (!split_levels(m, c->d, &s) || !expand(m, PLACES_D, c->d, summed_levels(c->d), &c->sum))
        return 0;
    c->rows = tile_rows(m, c->d);
    c->terms = c->sum.count * (by_entries(c->d) ? c->lanes : 1);
    c->step = c->rows < TILE ? TILE : c->rows;
    const Places *down = by_entries(c->d) ? &s.first : &s.second;
    const int64_t set = c->terms * c->step * (int64_t)sizeof(double);
    int64_t block = MOST_SCALAR_BYTES / set;
    block = block < 1 ? 1 : block > down->count ? down->count : block;
    const size_t size = (size_t)(c->terms * LANES) * sizeof(double);
    double *vectors = reserve(m, VECTORS, size), *scalars = reserve(m, SCALARS, (size_t)(block * set));
    if (!vectors || !scalars)
        return 0;
    memset(vectors, 0, size); /* lanes and rows that there are not */
    memset(scalars, 0, (size_t)(block * set));
    for (int64_t b = 0; b < s.both.count; b++)
        if (!decoded_tiles(c, &s, b, block, vectors, scalars))
            return 0;
    return 1;
}

static int decoded_elementwise(Decoded *c)
{
    const Descriptor *d = c->d;
    const int lanes = (int)c->lanes;
    Places p;
    if (!expand(c->m, PLACES_A, d, outer_levels(d), &p))
        return 0;
    const double up = ldexp(1, (int)d->x_shift), beside = ldexp(1, (int)d->g_shift);
    for (int64_t t = 0; t < p.count; t++) {
        double x[LANES], g[LANES];
        const int16_t *first = c->o->x + (c->base[0] + p.x[t]) * lanes;
        const int16_t *second = c->o->g + (c->base[1] + p.g[t]) * lanes;
        if (!integers(c->m, d->x_format, first, lanes, x) ||
            !integers(c->m, d->g_format, second, lanes, g))
            return 0;
        for (int l = 0; l < lanes; l++) {
            const double sum = x[l] * up + g[l] * beside;
            x[l] = d->operation == MASK ? (g[l] > 0 ? x[l] : 0) : d->relu && sum < 0 ? 0 : sum;
        }
        put_decoded(c, c->base[2] + p.z[t], x);
    }
    return 1;
}

static inline int has_posits(const Descriptor *d) { return d->x_format || d->g_format || d->z_format; }

static int decoded_operation(Machine *m, const Descriptor *d, const Operands *o, const int64_t *base,
                             Requantiser *rq)
{
    Decoded c = {.m = m, .d = d, .o = o, .base = base, .rq = rq, .lanes = m->lanes};
    c.scale = ldexp(1, -(int)d->shift);
    return elementwise(d) ? decoded_elementwise(&c) : decoded_contraction(&c);
}

#endif
