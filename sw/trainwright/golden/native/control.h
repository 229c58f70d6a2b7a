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

/* 0 where a register passes what addresses may be. */
static inline int step_registers(Control *c, const Descriptor *d, int set)
{
    int right = 1;
    for (int r = 1; r < REGISTERS; r++) {
        if (d->g >> r & 1 && (right = right && within(d->level[r].x, MOST_BASE))) {
            c->registers[r] = d->level[r].x + (set ? 0 : c->registers[r]);
            right = within(c->registers[r], MOST_BASE);
        }
    }
    return right;
}

static inline Descriptor *refused(int *wrong)
{
    *wrong = 1;
    return NULL;
}

/* The next descriptor that an engine executes; NULL at the end. ``wrong``: loops do not match, or a
 * register passes its limit. */
static Descriptor *next(Control *c, int *wrong)
{
    while (c->at < c->count) {
        Descriptor *d = &c->program[c->at++];
        if (d->operation == HALT) {
            *wrong = c->depth > 0;
            return NULL;
        } else if (d->operation == SET) {
            if (!step_registers(c, d, 1) ||
                (d->g & 1 && (d->level[0].x < 0 || d->level[0].x > UINT32_MAX)))
                return refused(wrong);
            if (d->g & 1)
                c->stream = (uint32_t)d->level[0].x;
        } else if (d->operation == LOOP) {
            if (c->depth == MOST_LOOPS || d->x < 1)
                return refused(wrong);
            c->loop[c->depth].start = c->at;
            c->loop[c->depth++].left = d->x;
        } else if (d->operation == END) {
            if (!c->depth || !step_registers(c, d, 0))
                return refused(wrong);
            if (--c->loop[c->depth - 1].left)
                c->at = c->loop[c->depth - 1].start;
            else
                c->depth--;
        } else {
            return d;
        }
    }
    *wrong = c->depth > 0;
    return NULL;
}

#endif
