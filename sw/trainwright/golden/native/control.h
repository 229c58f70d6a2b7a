/* Loops and address registers: which descriptor comes next, of a program whose loops match and which
 * ends with HALT (trainwright.program.validation). */
#ifndef TRAINWRIGHT_CONTROL_H
#define TRAINWRIGHT_CONTROL_H

#include "machine.h"
#include "stochastic.h"

enum { MOST_LOOPS = 8 }; /* that an accelerator can have */

typedef struct {
    Descriptor *program;
    int64_t at;
    int64_t registers[REGISTERS];
    uint32_t stream; /* of stochastic rounding */
    uint32_t step;   /* its number */
    int first, last; /* of a run */
    int every;       /* executes what other steps execute, too */
    int depth;
    struct {
        int64_t start, left;
    } loop[MOST_LOOPS];
} Control;

static inline void step_registers(Control *c, const Descriptor *d, int set)
{
    for (int r = 1; r < REGISTERS; r++)
        if (d->g >> r & 1)
            c->registers[r] = d->level[r].x + (set ? 0 : c->registers[r]);
}

/* Whether it is executed in other steps alone. */
static inline int is_skipped(const Control *c, const Descriptor *d)
{
    const int64_t o = d->operation;
    int64_t modulus = 1; /* the highest bit of grows; the others are the remainder */
    if (!(o == LOAD || o == STORE || o == VECTOR || o == CODE) || c->every)
        return 0;
    if ((d->g_exponent && !c->last) || (o != CODE && d->x_exponent && c->first))
        return 1;
    if (o == CODE || !d->grows)
        return 0;
    while (2 * modulus <= d->grows)
        modulus *= 2;
    return c->step % modulus != d->grows - modulus;
}

/* The next descriptor that an engine executes; NULL at the end. */
static Descriptor *next(Control *c)
{
    for (;;) {
        Descriptor *d = &c->program[c->at++];
        if (d->operation == HALT) {
            return NULL;
        } else if (d->operation == SET) {
            step_registers(c, d, 1);
            if (d->g & 1)
                c->stream = (uint32_t)d->level[0].x + (d->x ? 2 * STREAM_STEP * c->step : 0);
        } else if (d->operation == LOOP) {
            c->loop[c->depth].start = c->at;
            c->loop[c->depth++].left = d->x;
        } else if (d->operation == END) {
            step_registers(c, d, 0);
            if (--c->loop[c->depth - 1].left)
                c->at = c->loop[c->depth - 1].start;
            else
                c->depth--;
        } else if (!is_skipped(c, d)) {
            return d;
        }
    }
}

#endif
