/* Loops and address registers: which descriptor comes next. */
#ifndef TRAINWRIGHT_CONTROL_H
#define TRAINWRIGHT_CONTROL_H

#include "machine.h"

enum { MOST_LOOPS = 16 };

typedef struct {
    Descriptor *program;
    int64_t count, at;
    int64_t registers[REGISTERS];
    uint32_t stream; /* of stochastic rounding */
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

/* The next descriptor that an engine executes; NULL at the end. ``wrong``: loops do not match. */
static Descriptor *next(Control *c, int *wrong)
{
    while (c->at < c->count) {
        Descriptor *d = &c->program[c->at++];
        if (d->operation == HALT) {
            *wrong = c->depth > 0;
            return NULL;
        } else if (d->operation == SET) {
            step_registers(c, d, 1);
            if (d->g & 1)
                c->stream = (uint32_t)d->level[0].x;
        } else if (d->operation == LOOP) {
            if (c->depth == MOST_LOOPS || d->x < 1)
                break;
            c->loop[c->depth].start = c->at;
            c->loop[c->depth++].left = d->x;
        } else if (d->operation == END) {
            if (!c->depth)
                break;
            step_registers(c, d, 0);
            if (--c->loop[c->depth - 1].left)
                c->at = c->loop[c->depth - 1].start;
            else
                c->depth--;
        } else {
            return d;
        }
    }
    *wrong = c->at < c->count || c->depth;
    return NULL;
}

#endif
