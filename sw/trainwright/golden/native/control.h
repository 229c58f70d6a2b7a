/* Follow loops and address registers to the next descriptor of a program. Validation
 * (trainwright.program.validation) has matched the loops and found HALT at the end. */
#ifndef TRAINWRIGHT_CONTROL_H
#define TRAINWRIGHT_CONTROL_H

#include "machine.h"
#include "stochastic.h"

enum { MOST_LOOPS = 8 }; /* nesting depth that no accelerator exceeds */

typedef struct {
    Descriptor *program;
    int64_t at;
    int64_t registers[REGISTERS];
    uint32_t stream; /* stream of stochastic rounding */
    uint32_t step;   /* number of the training step */
    int every;       /* execute descriptors of all steps, not of this one alone */
    int depth;
    struct {
        int64_t start, left;
    } loop[MOST_LOOPS];
} Control;

/* Return whether a descriptor of these fields is skipped in this step. */
static inline int is_other_step(const Control *c, int64_t eighth)
{
    int64_t modulus = 1; /* the highest bit of eighth; the others are the remainder */
    while (2 * modulus <= eighth)
        modulus *= 2;
    return eighth && c->step % modulus != eighth - modulus;
}

static inline int is_skipped(const Control *c, const Descriptor *d)
{
    if (c->every)
        return 0;
    switch (d->operation) {
    case LOAD:
    case STORE:
        return is_other_step(c, d->transfer.eighth);
    case VECTOR:
        return is_other_step(c, d->vector.eighth);
    default:
        return 0;
    }
}

/* Return the next descriptor that an engine executes, or NULL at the end. */
static Descriptor *next(Control *c)
{
    for (;;) {
        Descriptor *d = &c->program[c->at++];
        if (d->operation == HALT) {
            return NULL;
        } else if (d->operation == SET) {
            const Set *set = &d->set;
            for (int r = 1; r < REGISTERS; r++)
                if (set->mask >> r & 1)
                    c->registers[r] = set->value[r];
            if (set->mask & 1) /* the seed, as R0 cannot be set */
                c->stream = (uint32_t)set->value[0] + (set->by_step ? 2 * STREAM_STEP * c->step : 0);
        } else if (d->operation == LOOP) {
            c->loop[c->depth].start = c->at;
            c->loop[c->depth++].left = d->loop.iterations;
        } else if (d->operation == END) {
            for (int r = 1; r < REGISTERS; r++)
                c->registers[r] += d->end.value[r];
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
