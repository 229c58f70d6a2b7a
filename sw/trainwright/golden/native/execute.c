/* Execute programs of the golden model in C, bit for bit as ``trainwright.golden.interpreter``. */

#include <string.h>

#include "contract.h"
#include "control.h"
#include "decoded.h"
#include "exponents.h"
#include "machine.h"
#include "pass.h"
#include "plain.h"
#include "samples.h"
#include "transfer.h"
#include "validate.h"

/* Set the operands of a descriptor: a copy of the scratchpad if its results overwrite the operands. */
static int operands(Machine *m, const Compute *d, Operands *o)
{
    const int16_t *pad = m->pad;
    if (d->overlaps) {
        size_t size = (size_t)(m->pad_rows * m->lanes) * sizeof(int16_t);
        int16_t *copy = reserve(m, SNAPSHOT, size);
        if (!copy)
            return 0;
        pad = memcpy(copy, m->pad, size);
    }
    o->pad = pad;
    o->g_words = second_words(m, d);
    o->entry_step = m->lanes * d->g_row_stride;
    return 1;
}

static int compute(Machine *m, const Compute *d, const Control *control)
{
    const int64_t *registers = control->registers;
    Operands o;
    if (!operands(m, d, &o))
        return 0;
    const int64_t base[] = {d->x + registers[d->x_register], d->g + registers[d->g_register],
                            d->z + registers[d->z_register]};
    Requantiser rq = {(int)d->shift, (int)d->out_width, (int)d->stochastic, control->stream, 0, 0, 0};
    if (!(has_posits(d) ? decoded_operation
          : elementwise(d) ? elementwise_operation
                           : contraction)(m, d, &o, base, &rq))
        return 0;
    m->sums[d->slot] = (m->sums[d->slot] + rq.total) & (((int64_t)1 << SUM_BITS) - 1);
    m->saturations[d->slot] = (m->saturations[d->slot] + rq.saturations) & UINT32_MAX;
    m->underflows[d->slot] += rq.underflows;
    return 1;
}

/* Execute a descriptor. Returns 0 where memory is short, a word stands for no number, or the exponent
 * file refuses the descriptor. */
static int execute(Machine *m, Descriptor *d, Engine *engine, Control *c)
{
    switch (d->operation) {
    case CODE:
        take_code(engine->code, &d->code);
        return 1;
    case VECTOR:
        return pass(m, &d->vector, engine, c->stream);
    case LOAD:
    case STORE:
        return transfer(m, &d->transfer, c->registers);
    case SAMPLES:
        samples(m, &d->samples, c->registers);
        return 1;
    case SCALES:
        return !(m->wrong_exponent = !move_scales(m, &d->move_scales));
    default:
        if (d->compute.z_exponent && (m->wrong_exponent = !take_shifts(m, &d->compute)))
            return 0;
        if (!compute(m, &d->compute, c))
            return 0;
        c->stream += STREAM_STEP;
        return 1;
    }
}

/* Execute a program that validate() accepted, ``times`` times, the first time as step number ``step``.
 * Returns 0, or a negative number where memory is short, where a word stands for no number (then
 * ``wrong_format`` is its format), or where the exponent file refuses a descriptor (``wrong_exponent``). */
int trainwright_execute(Machine *m, Descriptor *program, int64_t times, uint32_t step)
{
    Engine *engine = reserve(m, ENGINE, sizeof *engine);
    if (!engine)
        return -1;
    memset(engine->held, 0, sizeof engine->held);
    for (int64_t time = 0; time < times; time++) {
        Control c = {.program = program, .step = step + (uint32_t)time};
        for (Descriptor *d; (d = next(&c));) {
            if (!execute(m, d, engine, &c)) {
                m->wrong_descriptor = d - program;
                return -1;
            }
        }
    }
    return 0;
}

/* Check a program. Returns 0 if it can be executed, 1 if not, -1 where memory is short. With 0,
 * ``overlaps``, ``repeats`` and the widths are set, and ``rows`` (TRACES) counts each engine's rows.
 * ``scratch``: 17 * pad_rows bytes, zero. */
int trainwright_validate(Machine *m, Descriptor *program, uint8_t *scratch, int64_t *rows)
{
    Control c = {.program = program, .every = 1};
    Check k = {.m = m, .rows = rows};
    k.reads = (int64_t *)scratch;
    k.writes = k.reads + m->pad_rows;
    k.width = (uint8_t *)(k.writes + m->pad_rows);
    int right = 1;
    for (Descriptor *d; right && (d = next(&c));) {
        if (d->operation == CODE)
            take_code(k.code, &d->code);
        else if (d->operation == VECTOR)
            right = checked_pass(&k, &d->vector);
        else if (d->operation == LOAD || d->operation == STORE)
            right = checked_transfer(&k, &d->transfer, c.registers);
        else if (d->operation == SAMPLES)
            right = checked_samples(&k, &d->samples, c.registers);
        else if (d->operation != SCALES)
            right = checked_compute(&k, &d->compute, c.registers);
    }
    return m->short_of_memory ? -1 : !right;
}

/* Return the instruction set of this library: programs of another one would be misread. */
uint32_t trainwright_isa(void) { return ISA_DIGEST; }

void trainwright_release(Machine *m)
{
    for (int i = 0; i < BUFFERS; i++) {
        free(m->buffer[i].held);
        m->buffer[i] = (Buffer){0};
    }
}
