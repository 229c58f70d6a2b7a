/* Contractions of 16 lanes: tiles of 8 rows x 16 lanes, two products an addition.
 *
 * One operand, the *vectors*, is packed as pairs of terms beside each other, 16 lanes a row: the
 * transposed entries (PE4), or rows of x of two steps interleaved (PE3). Pairs of the other
 * operand are broadcast: words of x as they lie (PE4), or scalars packed likewise.
 *
 * Sums of 32 bits are used where widths, or else the largest values found, prove that none can
 * pass them; else they are taken over fewer terms and added in 64 bits (wide.h). None ever wraps.
 */
#ifndef TRAINWRIGHT_CONTRACT_H
#define TRAINWRIGHT_CONTRACT_H

#include "pack.h"
#include "wide.h"

enum { MOST_VECTOR_BYTES = 1 << 17 };

static INLINE void put_narrow(const Contraction *c, const Tile *t, const int entries)
{
    Sums sums[TILE];
    for (int64_t r = 0; r < t->rows; r += TILE) {
        const int rows = t->rows - r < TILE ? (int)(t->rows - r) : TILE;
        const int64_t step = c->d->z_row_stride;
        int16_t *to = c->m->pad + (t->z + r * step) * LANES;
        add_terms(c, t, t->vectors, r, 0, c->steps, sums, entries);
        if (c->rq->stochastic)
            put_narrow_random(c, t, r, sums, rows);
        else if (c->m->tracing)
            trace_narrow(c, t, r, sums, rows);
        else if (rows == TILE)
            requantise_sums(c->rq, sums, TILE, to, step * LANES);
        else
            requantise_sums(c->rq, sums, rows, to, step * LANES);
    }
}

/* Levels that move both operands, the first or neither, and only the second. */
typedef struct {
    Places both, first, second;
} Split;

static int split_levels(Machine *m, const Compute *d, Split *s)
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

static inline int fits(const Contraction *c, int64_t vector_most, int64_t scalar_most)
{
    return vector_most * scalar_most * c->steps * 2 <= c->limit;
}

static inline void place(const Contraction *c, const Split *s, int64_t b, int64_t f, int64_t n, Tile *t)
{
    int last = (s->both.last[b] | s->first.last[f] | s->second.last[n]) != 0;
    t->rows = last ? c->d->last_rows : c->rows;
    t->x = c->base[0] + s->both.x[b] + s->first.x[f];
    t->z = c->base[2] + s->both.z[b] + s->first.z[f] + s->second.z[n];
}

static int contract_entries(Contraction *c, const Split *s)
{
    int32_t *vectors = reserve(c->m, VECTORS, (size_t)c->steps * LANES * sizeof(int32_t));
    if (!vectors)
        return 0;
    Tile t = {.vectors = vectors};
    for (int64_t b = 0; b < s->both.count; b++) {
        for (int64_t n = 0; n < s->second.count; n++) {
            int64_t vector_most = (int64_t)1 << (c->d->g_width - 1);
            int64_t scalar_most = (int64_t)1 << (c->d->x_width - 1);
            pack_entries(c, c->base[1] + s->both.g[b] + s->second.g[n], vectors);
            if (!fits(c, vector_most, scalar_most))
                vector_most = largest_packed(vectors, c->steps * LANES);
            if (!fits(c, vector_most, scalar_most))
                scalar_most = largest_x(c, &s->both, &s->first);
            if (fits(c, vector_most, scalar_most)) {
                for (int64_t f = 0; f < s->first.count; f++) {
                    place(c, s, b, f, n, &t);
                    put_narrow(c, &t, 1);
                }
                continue;
            }
            for (int64_t f = 0; f < s->first.count; f++) {
                place(c, s, b, f, n, &t);
                if (!put_wide(c, &t, vector_most, scalar_most))
                    return 0;
            }
        }
    }
    return 1;
}

/* Compute the tiles of one set of scalars with vectors [start, stop) of the first levels. */
static int contract_scalars(const Contraction *c, const Split *s, int64_t b, int64_t n, int64_t start,
                            int64_t stop, const int32_t *vectors, const int32_t *scalars,
                            int64_t *vector_most)
{
    const int64_t words = c->steps * LANES;
    int64_t most = (int64_t)1 << (c->d->x_width - 1);
    int64_t scalar_most = (int64_t)1 << (c->d->g_width - 1);
    if (!fits(c, most, scalar_most)) {
        if (*vector_most < 0)
            *vector_most = largest_packed(vectors, (stop - start) * words);
        most = *vector_most;
        scalar_most = largest_packed(scalars, c->steps * c->scalar_step);
    }
    const int narrow = fits(c, most, scalar_most);
    Tile t = {.scalars = scalars};
    for (int64_t f = start; f < stop; f++) {
        t.vectors = vectors + (f - start) * words;
        place(c, s, b, f, n, &t);
        if (narrow)
            put_narrow(c, &t, 0);
        else if (!put_wide(c, &t, most, scalar_most))
            return 0;
    }
    return 1;
}

static int contract_rows(Contraction *c, const Split *s)
{
    const int64_t words = c->steps * LANES, count = c->steps * c->scalar_step;
    int64_t block = MOST_VECTOR_BYTES / (words * (int64_t)sizeof(int32_t));
    block = block < 1 ? 1 : block > s->first.count ? s->first.count : block;
    int32_t *vectors = reserve(c->m, VECTORS, (size_t)(block * words) * sizeof(int32_t));
    int32_t *scalars = reserve(c->m, SCALARS, (size_t)count * sizeof(int32_t));
    if (!vectors || !scalars)
        return 0;
    memset(scalars, 0, (size_t)count * sizeof(int32_t)); /* 0 in unused rows */
    for (int64_t b = 0; b < s->both.count; b++) {
        for (int64_t start = 0; start < s->first.count; start += block) {
            int64_t stop = start + block < s->first.count ? start + block : s->first.count;
            int64_t vector_most = -1;
            for (int64_t f = start; f < stop; f++)
                pack_rows(c, c->base[0] + s->both.x[b] + s->first.x[f],
                          vectors + (f - start) * words);
            for (int64_t n = 0; n < s->second.count; n++) {
                pack_scalars(c, c->base[1] + s->both.g[b] + s->second.g[n], scalars);
                if (!contract_scalars(c, s, b, n, start, stop, vectors, scalars, &vector_most))
                    return 0;
            }
        }
    }
    return 1;
}

static int contraction(Machine *m, const Compute *d, const Operands *o, const int64_t *base,
                       Requantiser *rq)
{
    if (m->lanes != LANES || d->digits || result_digits(m, d) > 1)
        return plain_contraction(m, d, o, base, rq);
    Split s;
    Contraction c = {.m = m, .d = d, .o = o, .base = base, .rq = rq, .x_most = -1};
    if (!split_levels(m, d, &s) || !expand(m, PLACES_D, d, summed_levels(d), &c.sum))
        return 0;
    c.rows = tile_rows(m, d);
    c.steps = by_entries(d) ? c.sum.count * 8 : (c.sum.count + 1) / 2;
    c.scalar_step = c.rows < TILE ? TILE : c.rows;
    c.limit = narrow_limit(rq);
    return by_entries(d) ? contract_entries(&c, &s) : contract_rows(&c, &s);
}

#endif
