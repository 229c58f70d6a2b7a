/* Contractions of 16 lanes: tiles of 8 rows x 16 lanes, two products an addition.
 *
 * One operand, the *vectors*, is packed as pairs of terms beside each other, 16 lanes a row: the
 * transposed entries (PE1, PE4), or rows of x of two steps interleaved (PE2, PE3). Pairs of the
 * other operand are broadcast: words of x as they lie (PE1, PE4), or scalars packed likewise.
 *
 * Sums of 32 bits are used where the largest values found prove that none can pass them; else
 * they are taken over fewer terms and added in 64 bits; else the vectors are split into 256 high +
 * low first. So no sum ever wraps.
 */
#ifndef TTFORGE_CONTRACT_H
#define TTFORGE_CONTRACT_H

#include "machine.h"
#include "plain.h"
#include "requantise.h"
#include "vector.h"

enum { LANES = 16, TILE = 8, MOST_VECTOR_BYTES = 1 << 17, LEAST_CHUNK = 64 };

/* What one descriptor's tiles have in common. */
typedef struct {
    Machine *m;
    const Descriptor *d;
    const Operands *o;
    const int64_t *base;
    Requantiser *rq;
    Places sum;
    int64_t rows;  /* of a whole tile */
    int64_t steps; /* vectors of a tile: pairs of terms of a sum */
    int64_t scalar_step;
    int64_t x_most; /* largest |x|, once it was needed; PE1, PE4 */
} Contraction;

/* One tile: where it lies, and its packed operands. */
typedef struct {
    int64_t x, z, rows;
    const int32_t *vectors; /* (steps, 16) */
    const int32_t *scalars; /* (steps, scalar_step); PE2, PE3 */
    int64_t vector_most, scalar_most;
} Tile;

static inline int64_t largest(const int16_t *words, int64_t count, int64_t most)
{
    uint16_t found = (uint16_t)most;
    for (int64_t i = 0; i < count; i++) {
        uint16_t value = (uint16_t)(words[i] < 0 ? -words[i] : words[i]);
        found = value > found ? value : found;
    }
    return found;
}

/* Packing. */

static inline void interleave(const int16_t *low, const int16_t *high, int count, int32_t *out)
{
    for (int i = 0; i < count; i++)
        out[i] = (int32_t)((uint32_t)(uint16_t)low[i] | (uint32_t)(uint16_t)high[i] << 16);
}

static const int16_t zeros[LANES];

static void pack_entries(const Contraction *c, int64_t g, int32_t *out)
{
    for (int64_t k = 0; k < c->sum.count; k++, out += 8 * LANES)
        transpose_pairs(c->o->g + (g + c->sum.g[k]) * c->o->g_words, c->o->entry_step, out);
}

static void pack_rows(const Contraction *c, int64_t x, int32_t *out)
{
    const int64_t *at = c->sum.x, count = c->sum.count;
    for (int64_t k = 0; k < count; k += 2, out += LANES)
        interleave(c->o->x + (x + at[k]) * LANES,
                   k + 1 < count ? c->o->x + (x + at[k + 1]) * LANES : zeros, LANES, out);
}

static void pack_scalars(const Contraction *c, int64_t g, int32_t *out)
{
    const int64_t *at = c->sum.g, count = c->sum.count;
    for (int64_t k = 0; k < count; k += 2, out += c->scalar_step) {
        const int16_t *low = c->o->g + (g + at[k]) * c->o->g_words;
        const int16_t *high = k + 1 < count ? c->o->g + (g + at[k + 1]) * c->o->g_words : zeros;
        if (c->rows == TILE)
            interleave(low, high, TILE, out);
        else
            interleave(low, high, (int)c->rows, out);
    }
}

/* Sums of vectors [from, to) of a tile, for 8 rows from row r on. */

static inline void add_entries(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                               int64_t from, int64_t to, int32_t *out)
{
    const int16_t *row[TILE];
    for (int i = 0; i < TILE; i++) { /* rows that there are not: any that there is */
        int64_t at = r + i < t->rows ? r + i : r;
        row[i] = c->o->x + (t->x + at * c->d->x_row_stride) * LANES;
    }
    Sums sum[TILE];
    for (int i = 0; i < TILE; i++)
        sum[i] = sums_zero();
    const int32_t *v = vectors + from * LANES;
    for (int64_t k = from / 8; k < to / 8; k++, v += 8 * LANES) {
        const int64_t at = c->sum.x[k] * LANES;
        for (int p = 0; p < 8; p++) {
            Sums pairs = sums_load(v + p * LANES);
            for (int i = 0; i < TILE; i++)
                sum[i] = sums_dot(sum[i], pairs, pair_at(row[i] + at + 2 * p));
        }
    }
    for (int i = 0; i < TILE; i++)
        sums_store(out + i * LANES, sum[i]);
}

static inline void add_scalars(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                               int64_t from, int64_t to, int32_t *out)
{
    Sums sum[TILE];
    for (int i = 0; i < TILE; i++)
        sum[i] = sums_zero();
    const int32_t *v = vectors + from * LANES, *s = t->scalars + from * c->scalar_step + r;
    for (int64_t k = from; k < to; k++, v += LANES, s += c->scalar_step) {
        Sums pairs = sums_load(v);
        for (int i = 0; i < TILE; i++)
            sum[i] = sums_dot(sum[i], pairs, s[i]);
    }
    for (int i = 0; i < TILE; i++)
        sums_store(out + i * LANES, sum[i]);
}

static inline void add(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                       int64_t from, int64_t to, int32_t *out)
{
    if (by_entries(c->d))
        add_entries(c, t, vectors, r, from, to, out);
    else
        add_scalars(c, t, vectors, r, from, to, out);
}

/* Tiles. */

static int64_t x_most(Contraction *c, const Places *both, const Places *first)
{
    if (c->x_most >= 0)
        return c->x_most;
    int64_t most = 0;
    for (int64_t b = 0; b < both->count; b++) {
        for (int64_t f = 0; f < first->count; f++) {
            int64_t rows = both->last[b] | first->last[f] ? c->d->last_rows : c->rows;
            const int16_t *x = c->o->x + (c->base[0] + both->x[b] + first->x[f]) * LANES;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t k = 0; k < c->sum.count; k++)
                    most = largest(x + (r * c->d->x_row_stride + c->sum.x[k]) * LANES, LANES, most);
        }
    }
    return c->x_most = most;
}

static inline void put_row(const Contraction *c, int64_t z, const int16_t *row)
{
    if (c->m->tracing)
        put_trace(c->m, by_entries(c->d) ? TRACE_PE1 : TRACE_PE2, z, row);
}

static void narrow_tile(const Contraction *c, const Tile *t)
{
    int32_t sums[TILE * LANES];
    for (int64_t r = 0; r < t->rows; r += TILE) {
        add(c, t, t->vectors, r, 0, c->steps, sums);
        int64_t rows = t->rows - r < TILE ? t->rows - r : TILE;
        for (int64_t i = 0; i < rows; i++) {
            int64_t z = t->z + (r + i) * c->d->z_row_stride;
            int16_t *to = c->m->pad + z * LANES;
            requantise_narrow(c->rq, sums + i * LANES, LANES, to);
            put_row(c, z, to);
        }
    }
}

/* Adds sums of 32 bits, each of ``chunk`` steps, x ``scale`` to those of 64 bits. */
static void add_wide(const Contraction *c, const Tile *t, const int32_t *vectors, int64_t r,
                     int64_t chunk, int64_t scale, int64_t *wide)
{
    int32_t sums[TILE * LANES];
    for (int64_t from = 0; from < c->steps; from += chunk) {
        add(c, t, vectors, r, from, from + chunk < c->steps ? from + chunk : c->steps, sums);
        for (int i = 0; i < TILE * LANES; i++)
            wide[i] += sums[i] * scale;
    }
}

static int wide_tile(const Contraction *c, const Tile *t)
{
    const int64_t step_terms = 2, unit = by_entries(c->d) ? 8 : 1; /* steps that stay together */
    int64_t most = t->vector_most * t->scalar_most, wide[TILE * LANES];
    int64_t chunk = most ? INT32_MAX / most / step_terms / unit * unit : c->steps;
    const int split = chunk < c->steps && chunk * step_terms < LEAST_CHUNK;
    const int32_t *high = t->vectors, *low = NULL;
    if (split) {
        int64_t words = c->steps * LANES * 2;
        int16_t *parts = reserve(c->m, PARTS, (size_t)words * 4);
        if (!parts)
            return 0;
        const int16_t *whole = (const int16_t *)t->vectors;
        for (int64_t i = 0; i < words; i++) {
            int upper = (whole[i] + 128) >> 8;
            parts[i] = (int16_t)upper;
            parts[words + i] = (int16_t)(whole[i] - upper * 256);
        }
        high = (const int32_t *)parts;
        low = (const int32_t *)(parts + words);
        chunk = INT32_MAX / (128 * t->scalar_most) / step_terms / unit * unit;
    }
    for (int64_t r = 0; r < t->rows; r += TILE) {
        for (int i = 0; i < TILE * LANES; i++)
            wide[i] = 0;
        add_wide(c, t, high, r, chunk, split ? 256 : 1, wide);
        if (split)
            add_wide(c, t, low, r, chunk, 1, wide);
        for (int64_t i = 0; i < TILE && r + i < t->rows; i++) {
            int64_t z = t->z + (r + i) * c->d->z_row_stride;
            int16_t *to = c->m->pad + z * LANES;
            requantise_wide(c->rq, wide + i * LANES, LANES, to);
            put_row(c, z, to);
        }
    }
    return 1;
}

static inline int put_tile(const Contraction *c, const Tile *t)
{
    int64_t most = t->vector_most * t->scalar_most * c->steps * 2;
    if (most <= narrow_limit(c->rq)) {
        narrow_tile(c, t);
        return 1;
    }
    return wide_tile(c, t);
}

/* Levels that move both operands, the first or neither, the second alone. */
typedef struct {
    Places both, first, second;
} Split;

static int split_levels(Machine *m, const Descriptor *d, Split *s)
{
    uint32_t both = 0, first = 0, second = 0;
    const int in_order = d->repeats || m->tracing;
    for (int i = 0; i < d->levels - d->reduce_levels; i++) {
        const Level *v = &d->level[i];
        const int moves_x = v->x || (i == d->tile_level && by_entries(d));
        *(in_order || (moves_x && v->g) ? &both : v->g ? &second : &first) |= 1u << i;
    }
    return expand(m, PLACES_A, d, both, &s->both) && expand(m, PLACES_B, d, first, &s->first) &&
           expand(m, PLACES_C, d, second, &s->second);
}

static int contract_entries(Contraction *c, const Split *s)
{
    int32_t *vectors = reserve(c->m, VECTORS, (size_t)c->steps * LANES * sizeof(int32_t));
    if (!vectors)
        return 0;
    for (int64_t b = 0; b < s->both.count; b++) {
        for (int64_t n = 0; n < s->second.count; n++) {
            pack_entries(c, c->base[1] + s->both.g[b] + s->second.g[n], vectors);
            Tile t = {.vectors = vectors, .scalar_most = 1 << 15};
            t.vector_most = largest((int16_t *)vectors, c->steps * LANES * 2, 0);
            if (t.vector_most * t.scalar_most * c->steps * 2 > narrow_limit(c->rq))
                t.scalar_most = x_most(c, &s->both, &s->first);
            for (int64_t f = 0; f < s->first.count; f++) {
                int last = s->both.last[b] | s->first.last[f] | s->second.last[n];
                t.rows = last ? c->d->last_rows : c->rows;
                t.x = c->base[0] + s->both.x[b] + s->first.x[f];
                t.z = c->base[2] + s->both.z[b] + s->first.z[f] + s->second.z[n];
                if (!put_tile(c, &t))
                    return 0;
            }
        }
    }
    return 1;
}

static int contract_rows(Contraction *c, const Split *s)
{
    const int64_t words = c->steps * LANES;
    int64_t block = MOST_VECTOR_BYTES / (words * (int64_t)sizeof(int32_t));
    block = block < 1 ? 1 : block > s->first.count ? s->first.count : block;
    int32_t *vectors = reserve(c->m, VECTORS, (size_t)(block * words) * sizeof(int32_t));
    int32_t *scalars = reserve(c->m, SCALARS, (size_t)(c->steps * c->scalar_step) * sizeof(int32_t));
    if (!vectors || !scalars)
        return 0;
    for (int64_t i = 0; i < c->steps * c->scalar_step; i++)
        scalars[i] = 0; /* rows that there are not */
    for (int64_t b = 0; b < s->both.count; b++) {
        for (int64_t start = 0; start < s->first.count; start += block) {
            int64_t stop = start + block < s->first.count ? start + block : s->first.count;
            for (int64_t f = start; f < stop; f++)
                pack_rows(c, c->base[0] + s->both.x[b] + s->first.x[f],
                          vectors + (f - start) * words);
            int64_t vector_most = largest((int16_t *)vectors, (stop - start) * words * 2, 0);
            for (int64_t n = 0; n < s->second.count; n++) {
                pack_scalars(c, c->base[1] + s->both.g[b] + s->second.g[n], scalars);
                Tile t = {.scalars = scalars, .vector_most = vector_most};
                t.scalar_most = largest((int16_t *)scalars, c->steps * c->scalar_step * 2, 0);
                for (int64_t f = start; f < stop; f++) {
                    int last = s->both.last[b] | s->first.last[f] | s->second.last[n];
                    t.rows = last ? c->d->last_rows : c->rows;
                    t.vectors = vectors + (f - start) * words;
                    t.z = c->base[2] + s->both.z[b] + s->first.z[f] + s->second.z[n];
                    if (!put_tile(c, &t))
                        return 0;
                }
            }
        }
    }
    return 1;
}

static int contraction(Machine *m, const Descriptor *d, const Operands *o, const int64_t *base,
                       Requantiser *rq)
{
    if (m->lanes != LANES)
        return plain_contraction(m, d, o, base, rq);
    Split s;
    Contraction c = {.m = m, .d = d, .o = o, .base = base, .rq = rq, .x_most = -1};
    if (!split_levels(m, d, &s) || !expand(m, PLACES_D, d, summed_levels(d), &c.sum))
        return 0;
    c.rows = tile_rows(m, d);
    c.steps = by_entries(d) ? c.sum.count * 8 : (c.sum.count + 1) / 2;
    c.scalar_step = c.rows < TILE ? TILE : c.rows;
    return by_entries(d) ? contract_entries(&c, &s) : contract_rows(&c, &s);
}

#endif
