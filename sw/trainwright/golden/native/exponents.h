/* Exponent file, step for step as ``trainwright.program.exponents.ExponentFile``.
 *
 * A refused descriptor leaves the file unchanged, so that the host's own file refuses the descriptor
 * with the same words. A refused entry of SCALES leaves the entries before it executed.
 */
#ifndef TRAINWRIGHT_EXPONENTS_H
#define TRAINWRIGHT_EXPONENTS_H

#include "machine.h"

static inline int is_exponent(int64_t value)
{
    return LEAST_OF_FILE <= value && value <= GREATEST_OF_FILE;
}

static inline int64_t less_of(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t greater_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Set the shifts of a compute descriptor that has a ``z_exponent``. Returns 0 if the file refuses a
 * shift. */
static int take_shifts(Machine *m, Compute *d)
{
    const int64_t x = m->exponents[d->x_exponent], g = m->exponents[d->g_exponent];
    const int64_t z = m->exponents[d->z_exponent];
    const int64_t floor = d->operation == BIAS ? less_of(x, g) : x + g;
    const int64_t x_shift = d->operation == BIAS ? x - floor : 0;
    const int64_t g_shift = d->operation == BIAS ? g - floor : 0;
    int64_t exponent = d->exact ? floor : less_of(greater_of(z, floor), floor + MOST_SHIFT);
    if (d->grows)
        exponent = less_of(exponent, g + m->most_alignment);
    if (greater_of(x_shift, g_shift) > m->most_alignment || !is_exponent(exponent))
        return 0;
    m->exponents[d->z_exponent] = exponent;
    m->above[d->z_exponent] = exponent > floor;
    d->shift = exponent - floor;
    d->x_shift = x_shift;
    d->g_shift = g_shift;
    return 1;
}

static int move_scales(Machine *m, const MoveScales *d)
{
    for (int64_t n = 0; n < d->entries; n++) {
        const ScaleEntry *e = &d->entry[n];
        const int64_t slot = e->exponent, total = m->sums[e->statistics];
        const int64_t step = total > e->high ? 1 : total < e->low && m->above[slot] ? -1 : 0;
        if (slot && !is_exponent(m->exponents[slot] + step)) {
            m->wrong_entry = n;
            return 0;
        }
        if (e->copy)
            m->exponents[e->copy] = m->exponents[slot];
        m->exponents[slot] += slot ? step : 0;
        m->sums[e->statistics] = 0;
    }
    return 1;
}

#endif
