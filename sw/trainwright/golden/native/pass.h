/* Execute passes of the vector engine, bit for bit as ``trainwright.golden.vector``, one instruction
 * and one block of rows at a time.
 */
#ifndef TRAINWRIGHT_PASS_H
#define TRAINWRIGHT_PASS_H

#include <string.h>

#include "exponents.h"
#include "machine.h"
#include "stochastic.h"

enum { BLOCK = THREADS * MOST_LANES, ROW_BITS = 16 };
enum { FRACTION = 16, REST = 10, TABLE_ENTRIES = 64, SLOPE_SHIFT = 16 };

typedef struct {
    Instruction code[CODE_DEPTH];
    int64_t held[VECTOR_REGISTERS][BLOCK]; /* (threads, lanes) of each register */
} Engine;

static inline void take_code(Instruction *code, const Code *d)
{
    for (int64_t n = 0; n < d->instructions; n++)
        code[d->first + n] = unpacked_instruction((uint64_t)d->word[n]);
}

/* Return the mask of registers that an instruction reads. A conditional instruction also reads d, whose
 * old values it keeps in some lanes.
 */
static inline int reads_registers(const Instruction *i)
{
    const int second = i->kind == KIND_PRODUCT || i->kind == KIND_MAXIMUM || i->kind == KIND_MINIMUM || i->kind == KIND_AND;
    const int first = (i->kind != KIND_LANE && i->memory != MEMORY_READ) || i->shift_by == SHIFT_BY_A;
    const int third = i->addend == ADDEND_PLUS || i->addend == ADDEND_MINUS || i->shift_by == SHIFT_BY_C || i->when;
    return first << i->a | (!i->use_k && second) << i->b | third << i->c |
           (i->keep && i->when) << i->d;
}

static inline int64_t pass_row(const Vector *d, int stream, int64_t row)
{
    const Stream *s = &d->stream[stream];
    return s->base + row / d->inner * s->outer + row % d->inner * s->inner;
}

static inline int64_t wrapped(int64_t value, int width)
{
    const int64_t half = (int64_t)1 << (width - 1);
    return ((value + half) & (2 * half - 1)) - half;
}

/* Block of rows that a pass executes at once. */
typedef struct {
    const Machine *m;
    const Vector *d;
    Engine *engine;
    uint32_t stream;
    int lanes, threads, n; /* n = threads x lanes, of this block */
    int64_t first;         /* row of this block */
    const int16_t *rows[STREAMS];
    int64_t constants[STREAMS], shifts[SHIFTS];
} Block;

/* Read the constants and shifts of a pass. Returns 0 if a strict scalar is negative. */
static int pass_scalars(Block *b)
{
    for (int n = 0; n < STREAMS; n++)
        b->constants[n] = b->d->constant[n];
    memset(b->shifts, 0, sizeof b->shifts);
    for (int64_t n = 0; n < b->d->scalars; n++) {
        const Scalar *s = &b->d->scalar[n];
        const int64_t value = b->m->exponents[s->plus] - b->m->exponents[s->minus] + s->offset;
        if (s->strict && value < 0)
            return 0;
        if (s->kind == SCALAR_KIND_VALUE)
            b->constants[s->to] = value;
        else if (s->kind == SCALAR_KIND_POWER)
            b->constants[s->to] = (int64_t)1 << less_of(greater_of(value, 0), MOST_POWER);
        else if (s->kind == SCALAR_KIND_SHIFT)
            b->shifts[s->to] = less_of(greater_of(value, 0), MOST_SHIFT);
    }
    return 1;
}

static inline void block_random(const Block *b, int number, int64_t *out)
{
    /* With fewer lanes several rows make up a row of 16 words, which has one key at any number of lanes. */
    const int rows = MOST_LANES / b->lanes;
    for (int t = 0; t < b->threads; t++) {
        const int64_t place = b->d->key + b->first + t;
        uint32_t words[4];
        mix(b->stream + (uint32_t)number * STREAM_STEP, (uint32_t)(place / rows * KEYS_A_ROW), &words[0],
            &words[1]);
        words[2] = words[0];
        words[3] = words[1];
        twist(&words[2], &words[3]);
        uint8_t bytes[MOST_LANES];
        memcpy(bytes, words, sizeof bytes); /* the lowest first */
        for (int l = 0; l < b->lanes; l++)
            out[t * b->lanes + l] = bytes[place % rows * b->lanes + l];
    }
}

/* Write the sum or the maximum of each row to all of its lanes. */
static inline void along(const Block *b, int greatest, const int64_t *a, int64_t *x)
{
    for (int t = 0; t < b->threads; t++) {
        const int64_t *row = a + t * b->lanes;
        int64_t result = row[0];
        for (int l = 1; l < b->lanes; l++)
            result = !greatest ? result + row[l] : row[l] > result ? row[l] : result;
        for (int l = 0; l < b->lanes; l++)
            x[t * b->lanes + l] = wrapped(result, WIDTH);
    }
}

static inline int64_t length_of(int64_t value)
{
    const uint64_t bits = (uint64_t)value & (((uint64_t)1 << WIDTH) - 1);
    return bits ? 64 - __builtin_clzll(bits) : 0;
}

static void pass_value(const Block *b, const Instruction *i, const int64_t *a, int64_t *value)
{
    const int n = b->n;
    const int64_t constant = b->constants[i->k];
    const int64_t *s = b->engine->held[i->b], *c = b->engine->held[i->c];
    int64_t same[BLOCK];
    if (i->use_k) {
        for (int e = 0; e < n; e++)
            same[e] = constant;
        s = same;
    }
    switch (i->kind) {
    case KIND_PASS:
        memcpy(value, a, (size_t)n * sizeof *a);
        break;
    case KIND_PRODUCT:
        for (int e = 0; e < n; e++)
            value[e] = wrapped(a[e], FACTOR_WIDTH) * wrapped(s[e], FACTOR_WIDTH);
        break;
    case KIND_TABLE:
        for (int e = 0; e < n; e++) {
            const int64_t x = a[e] & ((1 << FRACTION) - 1);
            const int64_t *entry = b->m->tables + 2 * (i->b * TABLE_ENTRIES + (x >> REST));
            value[e] = entry[0] * (1 << SLOPE_SHIFT) + entry[1] * (x & ((1 << REST) - 1));
        }
        break;
    case KIND_SUM:
    case KIND_GREATEST:
        along(b, i->kind == KIND_GREATEST, a, value);
        break;
    case KIND_MAXIMUM:
        for (int e = 0; e < n; e++)
            value[e] = a[e] > s[e] ? a[e] : s[e];
        break;
    case KIND_MINIMUM:
        for (int e = 0; e < n; e++)
            value[e] = a[e] < s[e] ? a[e] : s[e];
        break;
    case KIND_LENGTH:
        for (int e = 0; e < n; e++)
            value[e] = length_of(a[e]);
        break;
    case KIND_AND:
        for (int e = 0; e < n; e++)
            value[e] = a[e] & s[e];
        break;
    default: /* KIND_LANE */
        for (int e = 0; e < n; e++)
            value[e] = e % b->lanes;
    }
    const int64_t by = i->addend == ADDEND_CONSTANT ? constant : 0;
    const int64_t sign = i->addend == ADDEND_PLUS ? 1 : i->addend == ADDEND_MINUS ? -1 : 0;
    for (int e = 0; e < n; e++)
        value[e] = wrapped(value[e] + sign * c[e] + by, WIDTH);
}

static void pass_round(const Block *b, const Instruction *i, int64_t *value)
{
    const int n = b->n;
    const int64_t *by = b->engine->held[i->shift_by == SHIFT_BY_C ? i->c : i->a];
    int64_t shift[BLOCK], random[BLOCK];
    for (int e = 0; e < n; e++)
        shift[e] = i->shift_by == SHIFT_BY_FIELD    ? i->shift
                   : i->shift_by == SHIFT_BY_SCALAR ? b->shifts[i->shift]
                                              : by[e] & MOST_SHIFT;
    switch (i->rounding) {
    case ROUNDING_FLOOR:
        for (int e = 0; e < n; e++)
            value[e] >>= shift[e];
        break;
    case ROUNDING_EVEN: /* beyond WIDTH + 1 all shifts give 0 */
        /* Add a half, less 1 if the floor is even: a tie then goes to the even value. A shift of 0 adds 0. */
        for (int e = 0; e < n; e++) {
            const int64_t s = shift[e] > WIDTH + 1 ? WIDTH + 1 : shift[e], odd = s != 0;
            value[e] = (value[e] + ((int64_t)1 << s >> 1) - odd + (value[e] >> s & odd)) >> s;
        }
        break;
    case ROUNDING_UP: /* keep a bit below the point, and add a half */
        for (int e = 0; e < n; e++)
            value[e] = ((2 * value[e] >> shift[e]) + 1) >> 1;
        break;
    default: /* add (2 random + 1) / 2^9, after a cut to 9 bits below the point */
        block_random(b, i->rounding - ROUNDING_RANDOM, random);
        for (int e = 0; e < n; e++) {
            const int64_t first = shift[e] > 9 ? shift[e] - 9 : 0, then = shift[e] - first;
            value[e] = ((value[e] >> first) + ((2 * random[e] + 1) >> (9 - then))) >> then;
        }
    }
}

/* Fit values to the width of an instruction; return how many were clipped. */
static int64_t pass_fit(const Block *b, const Instruction *i, int64_t *q)
{
    const int64_t half = (int64_t)1 << (i->width - 1);
    int64_t clips = 0;
    for (int e = 0; e < b->n; e++)
        clips += !i->wrap && (q[e] < -half || q[e] >= half);
    for (int e = 0; e < b->n; e++)
        q[e] = i->wrap ? wrapped(q[e], i->width) : q[e] < -half ? -half : q[e] < half ? q[e] : half - 1;
    return clips;
}

static void pass_keep(const Block *b, const Instruction *i, const int64_t *q)
{
    const int64_t *c = b->engine->held[i->c];
    int64_t *to = b->engine->held[i->d];
    for (int e = 0; e < b->n; e++) {
        const int chosen = i->when == WHEN_ALWAYS     ? 1
                           : i->when == WHEN_POSITIVE ? c[e] > 0
                           : i->when == WHEN_NEGATIVE ? c[e] < 0
                                                 : c[e] == 0;
        to[e] = chosen ? q[e] : to[e];
    }
}

static void pass_write(Machine *m, const Block *b, int stream, const int64_t *q)
{
    for (int t = 0; t < b->threads; t++) {
        const int64_t row = pass_row(b->d, stream, b->first + t);
        int16_t *to = m->pad + row * b->lanes;
        for (int l = 0; l < b->lanes; l++)
            to[l] = (int16_t)wrapped(q[t * b->lanes + l], ROW_BITS);
        if (m->tracing)
            put_trace(m, trace_of(VECTOR), row, to);
    }
}

/* Copy the rows of all streams that a pass reads, before the pass writes any result. */
static int read_streams(Machine *m, const Vector *d, Block *b)
{
    const int64_t rows = d->rows, size = rows * b->lanes;
    int16_t *copy = reserve(m, SNAPSHOT, (size_t)(STREAMS * size) * sizeof(int16_t));
    if (!copy)
        return 0;
    for (int n = 0; n < STREAMS; n++) {
        b->rows[n] = copy + n * size;
        for (int64_t row = 0; d->reads >> n & 1 && row < rows; row++)
            memcpy(copy + n * size + row * b->lanes, m->pad + pass_row(d, n, row) * b->lanes,
                   (size_t)b->lanes * sizeof(int16_t));
    }
    return 1;
}

/* Execute a pass. Returns 0 if memory is short or a scalar is refused. */
static int pass(Machine *m, const Vector *d, Engine *engine, uint32_t stream)
{
    Block b = {.m = m, .d = d, .engine = engine, .stream = stream, .lanes = (int)m->lanes};
    const int64_t rows = d->rows;
    int64_t total = 0, count = 0, clips = 0;
    if (!read_streams(m, d, &b))
        return 0;
    if (!pass_scalars(&b)) {
        m->wrong_exponent = 1;
        return 0;
    }
    for (b.first = 0; b.first < rows; b.first += THREADS) {
        b.threads = rows - b.first < THREADS ? (int)(rows - b.first) : THREADS;
        b.n = b.threads * b.lanes;
        for (const Instruction *i = engine->code + d->entry; i < engine->code + d->entry + d->length;
             i++) {
            int64_t q[BLOCK], read[BLOCK];
            const int16_t *words = b.rows[i->stream] + b.first * b.lanes;
            for (int e = 0; i->memory == MEMORY_READ && e < b.n; e++)
                read[e] = words[e];
            pass_value(&b, i, i->memory == MEMORY_READ ? read : engine->held[i->a], q);
            pass_round(&b, i, q);
            const int64_t clipped = pass_fit(&b, i, q);
            for (int e = 0; i->total && e < b.n; e += b.lanes)
                *(i->total == TOTAL_SUM ? &total : &count) += q[e];
            if (i->keep)
                pass_keep(&b, i, q);
            if (i->memory == MEMORY_WRITE) {
                pass_write(m, &b, i->stream, q);
                clips += clipped;
            }
        }
    }
    m->sums[d->slot] = (m->sums[d->slot] + total) & (((int64_t)1 << SUM_BITS) - 1);
    m->saturations[d->slot] = (m->saturations[d->slot] + count) & UINT32_MAX;
    m->clips[d->slot] += clips;
    return 1;
}

#endif
