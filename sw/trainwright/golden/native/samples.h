/* Execute SAMPLES: load records that trainwright.program.sample_order draws, and expand their pixels. */
#ifndef TRAINWRIGHT_SAMPLES_H
#define TRAINWRIGHT_SAMPLES_H

#include "machine.h"

enum { MULTIPLIER = 1664525 };
#define EPOCH_STEP 0x9E3779B8u

/* Return the bytes of a record: its pixels, and a beat of targets. */
static inline int64_t record_bytes(const Machine *m, const Samples *d) { return (d->beats + 1) * m->lanes; }

static inline int64_t rows_of_sample(const Samples *d) { return d->beats * (8 / d->pixels); }

static int64_t draw(Machine *m, const Samples *d)
{
    const uint64_t mask = (uint64_t)d->order_mask, increment = (uint64_t)m->order_increment | 1;
    uint64_t after = (uint64_t)m->order_next & mask, index;
    do {
        index = after;
        after = (MULTIPLIER * index + increment) & mask;
    } while (index >= (uint64_t)d->total);
    if (m->order_left == 1) {
        m->order_next = d->order_first;
        m->order_increment = (uint32_t)(m->order_increment + EPOCH_STEP);
        m->order_left = d->order_length;
    } else {
        m->order_next = (int64_t)after;
        m->order_left = (m->order_left - 1) & ((1 << ORDER_BITS) - 1);
    }
    return (int64_t)index;
}

/* Widen a pixel of ``bits`` bits to 8: repeat its bits from the top, so that full scale stays full. */
static inline int16_t expanded(uint32_t value, int width, int bits)
{
    const uint32_t byte = width == 4 ? value << 4 | value : value;
    return (int16_t)((byte << 8 | byte) >> (16 - bits));
}

static void sample_rows(const Machine *m, const Samples *d, const uint8_t *from, int16_t *to)
{
    const int64_t pixels = rows_of_sample(d) * m->lanes;
    const int width = (int)d->pixels;
    for (int64_t i = 0; i < pixels; i++) {
        const uint32_t value = width == 4 ? (from[i / 2] >> 4 * (i % 2)) & 15 : from[i];
        to[i] = expanded(value, width, (int)d->input_bits);
    }
}

static void samples(Machine *m, const Samples *d, const int64_t *registers)
{
    const int64_t base = d->address + registers[d->address_register];
    const int64_t local = d->local + registers[d->local_register];
    const int64_t lanes = m->lanes, rows = rows_of_sample(d);
    for (int64_t n = 0; n < d->samples; n++) {
        const int64_t number = d->drawn ? draw(m, d) : n;
        const uint8_t *from = m->memory + (base + number * d->stride);
        const int64_t row = local + n * d->local_step, target = d->targets + n;
        sample_rows(m, d, from, m->pad + row * lanes);
        for (int64_t i = 0; m->tracing && i < rows; i++)
            put_trace(m, trace_of(LOAD), row + i, m->pad + (row + i) * lanes);
        for (int64_t l = 0; l < lanes; l++)
            m->pad[target * lanes + l] = (int8_t)from[d->beats * lanes + l];
        if (m->tracing)
            put_trace(m, trace_of(LOAD), target, m->pad + target * lanes);
    }
    m->bytes_read += d->samples * record_bytes(m, d);
}

#endif
