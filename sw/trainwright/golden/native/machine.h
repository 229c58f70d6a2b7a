/* State of the machine that runs a program. isa.h has the descriptors, in the layout of
 * ``trainwright.program.records``. */
#ifndef TRAINWRIGHT_MACHINE_H
#define TRAINWRIGHT_MACHINE_H

#include <stdint.h>
#include <stdlib.h>

#include "isa.h"
#include "numbers.h"

enum { MOST_ROWS = 16, SUM_BITS = 48 };

/* Sizes and addresses below fit 63 bits, because trainwright.program.validation accepted the program. */

typedef struct {
    void *held;
    size_t size;
} Buffer;

enum { PLACES_A, PLACES_B, PLACES_C, PLACES_D, VECTORS, SCALARS, PARTS, SNAPSHOT, ENGINE, BUFFERS };

typedef struct {
    int64_t tile_rows[OPERATIONS];
    int64_t lanes, pad_rows, slots, memory_bytes, formats;
    int64_t wide_tensors, most_alignment, tracing;
    uint8_t *memory;
    int16_t *pad; /* (rows, lanes) */
    int64_t *sums, *saturations, *underflows;
    int64_t *clips; /* values that passes clipped, which hardware does not count */
    int64_t *exponents, *above; /* the exponent file: by slot, and whether over its tensor's floor */
    const Number *numbers; /* (formats + 1): by the number of a format, 0 fixed point */
    const int64_t *tables; /* base and slope of every entry of the vector engine's */
    int64_t bytes_read, bytes_written;
    int64_t *trace_addresses[TRACES];
    int16_t *trace_rows[TRACES];
    int64_t traced[TRACES];
    int64_t order_next, order_increment, order_left; /* trainwright.program.sample_order */
    int64_t short_of_memory;
    int64_t wrong_word, wrong_format, wrong_descriptor; /* a word that stands for no number */
    int64_t wrong_exponent, wrong_entry; /* the exponent file refuses a descriptor, an entry of it */
    Buffer buffer[BUFFERS];
} Machine;

enum { ALIGNMENT = 64 };

/* Return an aligned buffer of at least ``size`` bytes; NULL, and record it, if memory is short. */
static inline void *reserve(Machine *m, int which, size_t size)
{
    Buffer *b = &m->buffer[which];
    if (b->size < size || !b->held) {
        free(b->held);
        b->held = malloc(size + ALIGNMENT);
        b->size = b->held ? size : 0;
        m->short_of_memory |= !b->held;
    }
    return b->held ? (void *)(((uintptr_t)b->held + ALIGNMENT) / ALIGNMENT * ALIGNMENT) : NULL;
}

/* Addresses relative to the bases, for every index of some levels, the last level fastest. */
typedef struct {
    int64_t count;
    int64_t *x, *g, *z;
    int64_t *last; /* whether the tile level, if among them, is in its last iteration */
} Places;

/* List the addresses of the levels in the mask ``chosen``, out of ``count``. ``tile``: the tile level. */
static inline int expand_levels(Machine *m, int which, const Level *level, int64_t count,
                                uint32_t chosen, int64_t tile, Places *p)
{
    int64_t total = 1;
    for (int i = 0; i < count; i++)
        total *= chosen >> i & 1 ? level[i].count : 1;
    int64_t *base = reserve(m, which, (size_t)total * 4 * sizeof(int64_t));
    if (!base)
        return 0;
    *p = (Places){1, base, base + total, base + 2 * total, base + 3 * total};
    p->x[0] = p->g[0] = p->z[0] = p->last[0] = 0;
    for (int i = 0; i < count; i++) {
        if (!(chosen >> i & 1))
            continue;
        const Level *v = &level[i];
        for (int64_t old = p->count - 1; old >= 0; old--) {
            for (int64_t k = v->count - 1; k >= 0; k--) {
                int64_t at = old * v->count + k;
                p->x[at] = p->x[old] + k * v->x;
                p->g[at] = p->g[old] + k * v->g;
                p->z[at] = p->z[old] + k * v->z;
                p->last[at] = i == tile ? k == v->count - 1 : p->last[old];
            }
        }
        p->count *= v->count;
    }
    return 1;
}

/* List addresses of levels that are all outer or all summed: validation bounds their number. */
static inline int expand(Machine *m, int which, const Compute *d, uint32_t levels, Places *p)
{
    return expand_levels(m, which, d->level, d->levels, levels, d->tile_level, p);
}

/* List the runs of a transfer: external bytes as ``x``, scratchpad rows as ``z``. */
static inline int expand_runs(Machine *m, int which, const Transfer *d, Places *p)
{
    Level level[TRANSFER_LEVELS];
    for (int i = 0; i < d->levels; i++)
        level[i] = (Level){.count = d->level[i].count, .x = d->level[i].address, .z = d->level[i].local};
    return expand_levels(m, which, level, d->levels, (1u << d->levels) - 1, -1, p);
}

static inline uint32_t outer_levels(const Compute *d)
{
    return (1u << (d->levels - d->reduce_levels)) - 1;
}

static inline uint32_t summed_levels(const Compute *d)
{
    return ((1u << d->levels) - 1) & ~outer_levels(d);
}

static inline int by_entries(const Compute *d)
{
    return second_operand(d->operation) == BY_ENTRIES;
}

static inline int elementwise(const Compute *d)
{
    return second_operand(d->operation) == BY_ROWS;
}

static inline int64_t tile_rows(const Machine *m, const Compute *d)
{
    return m->tile_rows[d->operation];
}

/* Words of the second operand that an address steps over. */
static inline int64_t second_words(const Machine *m, const Compute *d)
{
    return second_operand(d->operation) == BY_GROUPS ? tile_rows(m, d) : m->lanes;
}

enum { MOST_DIGITS = 3 };

/* Return how many rows each row of a result is written to. */
static inline int result_digits(const Machine *m, const Compute *d)
{
    if (!m->wide_tensors || d->out_width < 2)
        return 1;
    return (int)((d->out_width - 1 + DIGIT_WIDTH - 1) / DIGIT_WIDTH);
}

static inline void put_trace(Machine *m, int engine, int64_t address, const int16_t *row)
{
    int64_t at = m->traced[engine]++;
    m->trace_addresses[engine][at] = address;
    for (int64_t l = 0; l < m->lanes; l++)
        m->trace_rows[engine][at * m->lanes + l] = row[l];
}

#endif
