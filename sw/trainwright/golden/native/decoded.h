/* Execute descriptors with posits: decode words to integers held as floats, and sum them in float64 at
 * most, which is exact below 2^53.
 *
 * A tile is, as in contract.h, the outer product, term by term, of *vectors* along the lanes (entries
 * of PE4, rows of x of PE3) and *scalars*, one a row. posit_tiles.h computes its
 * sums.
 */
#ifndef TRAINWRIGHT_DECODED_H
#define TRAINWRIGHT_DECODED_H

#include "contract.h"
#include "posit_tiles.h"

enum { MOST_SCALAR_BYTES = 1 << 18 };

static inline int has_posits(const Compute *d) { return d->x_format || d->g_format || d->z_format; }

/* Decode words. Returns 0, and records the word for the host, if a word stands for no number. */
static int integers(Machine *m, int64_t format, const int16_t *words, int count, float *out)
{
    if (decode_plain(&m->numbers[format], words, count, out))
        return 1;
    for (int i = 0; i < count; i++)
        if (out[i] != out[i])
            m->wrong_word = words[i];
    m->wrong_format = format;
    return 0;
}

/* Decode the vectors of a tile, (terms, LANES): entries of g transposed, or rows of x. */
static int plain_vectors(const Decoded *c, int64_t at, float *out)
{
    const int lanes = (int)c->lanes;
    float words[LANES];
    for (int64_t k = 0; k < c->sum.count; k++) {
        if (!by_entries(c->d)) {
            const int16_t *row = c->o->pad + (at + c->sum.x[k]) * lanes;
            if (!integers(c->m, c->d->x_format, row, lanes, out + k * LANES))
                return 0;
            continue;
        }
        const int16_t *entry = c->o->pad + (at + c->sum.g[k]) * c->o->g_words;
        for (int l = 0; l < lanes; l++, entry += c->o->entry_step) {
            if (!integers(c->m, c->d->g_format, entry, lanes, words))
                return 0;
            for (int i = 0; i < lanes; i++)
                out[(k * lanes + i) * LANES + l] = words[i];
        }
    }
    return 1;
}

/* Decode the scalars of a tile: ``rows`` rows of x as (rows, terms), or words of g as (terms, step). */
static int plain_scalars(const Decoded *c, int64_t at, int64_t rows, float *out)
{
    const int lanes = (int)c->lanes;
    for (int64_t k = 0; k < c->sum.count; k++) {
        if (!by_entries(c->d)) {
            const int16_t *from = c->o->pad + (at + c->sum.g[k]) * c->o->g_words;
            if (!integers(c->m, c->d->g_format, from, (int)c->rows, out + k * c->step))
                return 0;
            continue;
        }
        for (int64_t r = 0; r < rows; r++) {
            const int16_t *row = c->o->pad + (at + r * c->d->x_row_stride + c->sum.x[k]) * lanes;
            if (!integers(c->m, c->d->x_format, row, lanes, out + r * c->terms + k * lanes))
                return 0;
        }
    }
    return 1;
}

#if POSIT_VECTORS || POSIT_AVX2

static int decode_vectors(const Decoded *c, int64_t at, float *out)
{
    const int lanes = (int)c->lanes;
    Wrong wrong = 0;
    if (by_entries(c->d) && lanes < LANES)
        return plain_vectors(c, at, out);
    const Number *f = &c->m->numbers[by_entries(c->d) ? c->d->g_format : c->d->x_format];
    for (int64_t k = 0; k < c->sum.count; k++) {
        if (!by_entries(c->d)) {
            const int16_t *row = c->o->pad + (at + c->sum.x[k]) * lanes;
            decode_words(f, row, lanes, out + k * LANES, &wrong);
            continue;
        }
        int32_t pairs[8 * LANES];
        transpose_pairs(c->o->pad + (at + c->sum.g[k]) * c->o->g_words, c->o->entry_step, pairs);
        float *to = out + k * LANES * LANES;
        for (int p = 0; p < 8; p++, to += 2 * LANES)
            decode_pairs(f, pairs + p * LANES, to, to + LANES, &wrong);
    }
    return !wrong || plain_vectors(c, at, out);
}

static int decode_scalars(const Decoded *c, int64_t at, int64_t rows, float *out)
{
    const int lanes = (int)c->lanes, count = by_entries(c->d) ? lanes : (int)c->rows;
    const Number *f = &c->m->numbers[by_entries(c->d) ? c->d->x_format : c->d->g_format];
    Wrong wrong = 0;
    for (int64_t k = 0; k < c->sum.count; k++) {
        if (!by_entries(c->d)) {
            const int16_t *from = c->o->pad + (at + c->sum.g[k]) * c->o->g_words;
            decode_words(f, from, count, out + k * c->step, &wrong);
            continue;
        }
        const int16_t *row = c->o->pad + (at + c->sum.x[k]) * lanes;
        for (int64_t r = 0; r < rows; r++, row += c->d->x_row_stride * lanes)
            decode_words(f, row, count, out + r * c->terms + k * lanes, &wrong);
    }
    return !wrong || plain_scalars(c, at, rows, out);
}

#else

static int decode_vectors(const Decoded *c, int64_t at, float *out) { return plain_vectors(c, at, out); }

static int decode_scalars(const Decoded *c, int64_t at, int64_t rows, float *out)
{
    return plain_scalars(c, at, rows, out);
}

#endif

/* Compute the tiles of index ``b`` of the levels that move both operands. */
static int decoded_tiles(Decoded *c, const Split *s, int64_t b, int64_t block, float *vectors,
                         float *scalars)
{
    const int entries = by_entries(c->d);
    const Places *along = entries ? &s->second : &s->first, *down = entries ? &s->first : &s->second;
    const int64_t vector_at = entries ? c->base[1] + s->both.g[b] : c->base[0] + s->both.x[b];
    const int64_t scalars_at = entries ? c->base[0] + s->both.x[b] : c->base[1] + s->both.g[b];
    const int64_t set = c->terms * c->step;
    for (int64_t start = 0; start < down->count; start += block) {
        const int64_t stop = start + block < down->count ? start + block : down->count;
        for (int64_t i = start; i < stop; i++) {
            const int64_t at = scalars_at + (entries ? down->x[i] : down->g[i]);
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
    const int64_t set = c->terms * c->step * (int64_t)sizeof(float);
    int64_t block = MOST_SCALAR_BYTES / set;
    block = block < 1 ? 1 : block > down->count ? down->count : block;
    const size_t size = (size_t)(c->terms * LANES) * sizeof(float);
    float *vectors = reserve(m, VECTORS, size), *scalars = reserve(m, SCALARS, (size_t)(block * set));
    if (!vectors || !scalars)
        return 0;
    memset(vectors, 0, size); /* 0 in unused lanes and rows */
    memset(scalars, 0, (size_t)(block * set));
    for (int64_t b = 0; b < s.both.count; b++)
        if (!decoded_tiles(c, &s, b, block, vectors, scalars))
            return 0;
    return 1;
}

/* Compute a row of BIAS or MASK. Returns 0 if a word stands for no number. */
static int plain_elementwise_row(const Decoded *c, const int16_t *first, const int16_t *second, int64_t z)
{
    const Compute *d = c->d;
    const int lanes = (int)c->lanes;
    const double up = ldexp(1, (int)d->x_shift), beside = ldexp(1, (int)d->g_shift);
    float x[LANES], g[LANES];
    double sums[LANES];
    if (!integers(c->m, d->x_format, first, lanes, x) || !integers(c->m, d->g_format, second, lanes, g))
        return 0;
    for (int l = 0; l < lanes; l++) {
        const double sum = x[l] * up + g[l] * beside;
        sums[l] = d->operation == MASK ? (g[l] > 0 ? x[l] : 0) : d->relu && sum < 0 ? 0 : sum;
    }
    put_row_plain(c, z, sums);
    return 1;
}

#if POSIT_VECTORS

static int decoded_row(Decoded *c, const int16_t *first, const int16_t *second, int64_t z)
{
    const Compute *d = c->d;
    Wrong wrong = 0;
    const __m512 x = decode_row(&c->m->numbers[d->x_format], first, (int)c->lanes, &wrong);
    const __m512 g = decode_row(&c->m->numbers[d->g_format], second, (int)c->lanes, &wrong);
    if (wrong)
        return plain_elementwise_row(c, first, second, z);
    if (d->operation == MASK) {
        put_floats(c, z, _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(g, _mm512_setzero_ps(), _CMP_GT_OQ), x));
    } else {
        const __m512d up = _mm512_set1_pd(ldexp(1, (int)d->x_shift));
        const __m512d beside = _mm512_set1_pd(ldexp(1, (int)d->g_shift));
        const __m512d least = _mm512_set1_pd(d->relu ? 0 : -INFINITY);
        __m512d sums[2];
        for (int i = 0; i < 2; i++) {
            const __m512d product = _mm512_mul_pd(half_of(g, i), beside);
            sums[i] = _mm512_max_pd(_mm512_fmadd_pd(half_of(x, i), up, product), least);
        }
        put_doubles(c, z, sums[0], sums[1]);
    }
    count_encoded(c);
    return 1;
}

#else

static int decoded_row(Decoded *c, const int16_t *first, const int16_t *second, int64_t z)
{
    return plain_elementwise_row(c, first, second, z);
}

#endif

static int decoded_elementwise(Decoded *c)
{
    const Compute *d = c->d;
    Places p;
    if (!expand(c->m, PLACES_A, d, outer_levels(d), &p))
        return 0;
    for (int64_t t = 0; t < p.count; t++) {
        const int16_t *first = c->o->pad + (c->base[0] + p.x[t]) * c->lanes;
        const int16_t *second = c->o->pad + (c->base[1] + p.g[t]) * c->lanes;
        if (!decoded_row(c, first, second, c->base[2] + p.z[t]))
            return 0;
    }
    return 1;
}

static int decoded_operation(Machine *m, const Compute *d, const Operands *o, const int64_t *base,
                             Requantiser *rq)
{
    Decoded c = {.m = m, .d = d, .o = o, .base = base, .rq = rq, .lanes = m->lanes};
    c.scale = ldexp(1, -(int)d->shift);
#if POSIT_VECTORS || POSIT_AVX2
    Encoder encoder;
    if (d->z_format && m->numbers[d->z_format].registers) {
        encoder = encoder_of(&m->numbers[d->z_format], d->underflow_zero != 0, (int)c.lanes);
        c.encoder = &encoder;
    }
    clear_rounded();
#endif
    return elementwise(d) ? decoded_elementwise(&c) : decoded_contraction(&c);
}

#endif
