/* Execute LOAD and STORE: move rows between external memory and the scratchpad. */
#ifndef TRAINWRIGHT_TRANSFER_H
#define TRAINWRIGHT_TRANSFER_H

#include <string.h>

#include "machine.h"

static void load_run(Machine *m, int64_t element_bytes, const uint8_t *from, int64_t size, int64_t row)
{
    const int64_t count = size / element_bytes;
    int16_t *to = m->pad + row * m->lanes;
    if (element_bytes == 2)
        memcpy(to, from, (size_t)size);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = (int8_t)from[i];
    for (int64_t n = 0; m->tracing && n < count / m->lanes; n++)
        put_trace(m, trace_of(LOAD), row + n, to + n * m->lanes);
}

static void store_run(const Machine *m, int64_t element_bytes, uint8_t *to, int64_t size, int64_t row)
{
    const int16_t *from = m->pad + row * m->lanes;
    if (element_bytes == 2)
        memcpy(to, from, (size_t)size);
    else
        for (int64_t i = 0; i < size; i++)
            to[i] = (uint8_t)from[i];
}

static int transfer(Machine *m, const Transfer *d, const int64_t *registers)
{
    Places p;
    if (!expand_runs(m, PLACES_A, d, &p))
        return 0;
    const int64_t size = d->beats * m->lanes, address = d->address + registers[d->address_register];
    const int64_t local = d->local + registers[d->local_register];
    for (int64_t run = 0; run < p.count; run++) {
        uint8_t *outside = m->memory + (address + p.x[run]);
        int64_t inside = local + p.z[run];
        if (d->operation == STORE)
            store_run(m, d->element_bytes, outside, size, inside);
        else
            load_run(m, d->element_bytes, outside, size, inside);
    }
    *(d->operation == STORE ? &m->bytes_written : &m->bytes_read) += p.count * size;
    return 1;
}

#endif
