/* Check every access of a program without executing it, once per program: shifts change no address.
 *
 * trainwright.program.validation has checked the program before. This check refuses programs that read
 * rows before they are written; the interpreter in Python then gives the detailed error. It also refuses
 * computed addresses outside of the memories, so that memory safety does not depend on the sums of another
 * module. Slots are fields, not sums, and need no check here.
 */
#ifndef TRAINWRIGHT_VALIDATE_H
#define TRAINWRIGHT_VALIDATE_H

#include "control.h"
#include "machine.h"
#include "pass.h"
#include "samples.h"

enum { WORD_BITS = 16 };

typedef struct {
    Machine *m;
    uint8_t *width;           /* (pad_rows): bits that the words have at most; 0: not written */
    int64_t *reads, *writes;  /* (pad_rows): execution that last read or wrote the row */
    int64_t execution;        /* from 1 on */
    int64_t mark;             /* value stored in reads[]: the execution, or 0 */
    int64_t widest;           /* bits of the widest row read since this was reset */
    int64_t *rows;            /* (TRACES): rows written by each engine */
    Instruction code[CODE_DEPTH];        /* instructions of the vector engine */
    int64_t known[VECTOR_REGISTERS];     /* threads, from 0 on, that have written each register */
} Check;

static inline int reads_row(Check *k, int64_t row)
{
    if (row < 0 || row >= k->m->pad_rows || !k->width[row])
        return 0;
    k->widest = k->width[row] > k->widest ? k->width[row] : k->widest;
    k->reads[row] = k->mark;
    return 1;
}

/* Iterate over the indices of some levels, the last level fastest, without a list of addresses. */
typedef struct {
    int64_t at[NEST_LEVELS];
    int64_t x, g; /* relative to the bases */
} Walk;

static inline int advance(const Compute *d, uint32_t levels, Walk *w)
{
    for (int i = (int)d->levels - 1; i >= 0; i--) {
        if (!(levels >> i & 1))
            continue;
        const Level *v = &d->level[i];
        w->x += v->x;
        w->g += v->g;
        if (++w->at[i] < v->count)
            return 1;
        w->x -= v->count * v->x;
        w->g -= v->count * v->g;
        w->at[i] = 0;
    }
    return 0;
}

static int checked_transfer(Check *k, const Transfer *d, const int64_t *registers)
{
    Machine *m = k->m;
    Places p;
    if (!expand_runs(m, PLACES_A, d, &p))
        return 0;
    const int64_t size = d->beats * m->lanes, count = d->beats / d->element_bytes;
    for (int64_t run = 0; run < p.count; run++) {
        int64_t address = d->address + registers[d->address_register] + p.x[run];
        int64_t local = d->local + registers[d->local_register] + p.z[run];
        if (address < 0 || address + size > m->memory_bytes || local < 0 || local + count > m->pad_rows)
            return 0;
        for (int64_t row = local; row < local + count; row++) {
            if (d->operation == LOAD)
                k->width[row] = (uint8_t)(8 * d->element_bytes);
            else if (!reads_row(k, row))
                return 0;
        }
        if (d->operation == LOAD)
            k->rows[trace_of(LOAD)] += count;
    }
    return 1;
}

static int checked_samples(Check *k, const Samples *d, const int64_t *registers)
{
    Machine *m = k->m;
    const int64_t base = d->address + registers[d->address_register];
    const int64_t last = (d->drawn ? d->total : d->samples) - 1;
    if (base < 0 || base + last * d->stride + record_bytes(m, d) > m->memory_bytes)
        return 0;
    for (int64_t n = 0; n < d->samples; n++) {
        const int64_t row = d->local + registers[d->local_register] + n * d->local_step;
        const int64_t target = d->targets + n;
        if (row < 0 || row + rows_of_sample(d) > m->pad_rows || target < 0 || target >= m->pad_rows)
            return 0;
        memset(k->width + row, (int)d->input_bits + 1, (size_t)rows_of_sample(d));
        k->width[target] = 8;
        k->rows[trace_of(LOAD)] += rows_of_sample(d) + 1;
    }
    return 1;
}

/* Return the rows of the second operand. */
static int checked_second(Check *k, const Compute *d, int64_t base)
{
    Machine *m = k->m;
    uint32_t moving = 0;
    Walk w = {{0}, 0, 0};
    for (int i = 0; i < d->levels; i++)
        moving |= (uint32_t)(d->level[i].g != 0) << i;
    const int64_t groups = m->lanes / second_words(m, d);
    do {
        const int64_t g = base + w.g;
        int right = 1;
        if (by_entries(d))
            for (int64_t l = 0; l < m->lanes && right; l++)
                right = reads_row(k, g + l * d->g_row_stride);
        else
            right = g >= 0 && reads_row(k, g / groups);
        if (!right)
            return 0;
    } while (advance(d, moving, &w));
    return 1;
}

static int checked_first(Check *k, const Compute *d, int64_t base)
{
    uint32_t moving = 0;
    Walk w = {{0}, 0, 0};
    for (int i = 0; i < d->levels; i++)
        moving |= (uint32_t)(d->level[i].x != 0 || i == d->tile_level) << i;
    do {
        const int last = w.at[d->tile_level] == d->level[d->tile_level].count - 1;
        const int64_t rows = !by_entries(d) ? 1 : last ? d->last_rows : tile_rows(k->m, d);
        for (int64_t r = 0; r < rows; r++)
            if (!reads_row(k, base + w.x + r * d->x_row_stride))
                return 0;
    } while (advance(d, moving, &w));
    return 1;
}

/* Return whether an element-wise operation's operand has the address of its result, index by index.
 * Only then may a descriptor write a row that it reads: the order of its tiles does not show. */
static int in_place(const Machine *m, const Compute *d, int64_t operand, int64_t result, int second)
{
    int same = elementwise(d) && operand == result && result_digits(m, d) == 1;
    for (int i = 0; i < d->levels; i++)
        same = same && (second ? d->level[i].g : d->level[i].x) == d->level[i].z;
    return same;
}

static int checked_compute(Check *k, Compute *d, const int64_t *registers)
{
    Machine *m = k->m;
    const int64_t x = d->x + registers[d->x_register], g = d->g + registers[d->g_register];
    const int64_t z = d->z + registers[d->z_register], most = tile_rows(m, d);
    const int x_stays = in_place(m, d, x, z, 0), g_stays = in_place(m, d, g, z, 1);
    const int digits = result_digits(m, d);
    int crossing = 0, repeats = 0;
    k->execution++;
    k->mark = x_stays ? 0 : k->execution;
    k->widest = d->x_width;
    if (!checked_first(k, d, x))
        return 0;
    d->x_width = k->widest;
    k->mark = g_stays ? 0 : k->execution;
    k->widest = d->g_width;
    if (!checked_second(k, d, g))
        return 0;
    d->g_width = k->widest;
    Places p;
    if (!expand(m, PLACES_A, d, outer_levels(d), &p))
        return 0;
    for (int64_t t = 0; t < p.count; t++) {
        int64_t rows = p.last[t] ? d->last_rows : most;
        for (int64_t r = 0; r < rows; r++) {
            int64_t first = z + p.z[t] + r * d->z_row_stride;
            if (first < 0 || first + digits > m->pad_rows)
                return 0;
            for (int64_t row = first; row < first + digits; row++) {
                crossing |= k->reads[row] == k->execution;
                repeats |= k->writes[row] == k->execution;
                k->writes[row] = k->execution;
                k->width[row] = (uint8_t)(d->z_format || digits > 1 ? WORD_BITS : d->out_width);
            }
        }
        k->rows[trace_of(d->operation)] += rows * digits;
    }
    d->repeats |= repeats;
    d->overlaps |= crossing || (repeats && (x_stays || g_stays));
    return 1;
}

/* Return whether the pass writes every register before reading it, in the threads that its rows have.
 * Blocks after the first one find the registers as the first one left them. */
static int known_registers(Check *k, const Vector *d, int64_t threads)
{
    for (const Instruction *i = k->code + d->entry; i < k->code + d->entry + d->length; i++) {
        for (int r = 0; r < VECTOR_REGISTERS; r++)
            if (reads_registers(i) >> r & 1 && k->known[r] < threads)
                return 0;
        if (i->keep && k->known[i->d] < threads)
            k->known[i->d] = threads;
    }
    return 1;
}

static int checked_pass(Check *k, const Vector *d)
{
    const int64_t rows = d->rows;
    k->mark = 0;
    if (!known_registers(k, d, rows < THREADS ? rows : THREADS))
        return 0;
    for (int n = 0; n < STREAMS; n++)
        for (int64_t row = 0; d->reads >> n & 1 && row < rows; row++)
            if (!reads_row(k, pass_row(d, n, row)))
                return 0;
    for (int n = 0; n < STREAMS; n++) {
        for (int64_t row = 0; d->writes >> n & 1 && row < rows; row++) {
            const int64_t to = pass_row(d, n, row);
            if (to < 0 || to >= k->m->pad_rows)
                return 0;
            k->width[to] = WORD_BITS;
        }
        k->rows[trace_of(d->operation)] += d->writes >> n & 1 ? rows : 0;
    }
    return 1;
}

#endif
