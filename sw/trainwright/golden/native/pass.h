/* Passes of the vector engine, ``trainwright.golden.vector`` bit for bit: a block of rows and an
 * instruction at a time.
 *
 * CODE: x first, g instructions, level[n % 16].x their words, from the 17th on .g.
 * VECTOR: x entry, g length, z key, x_register outer, g_register inner, z_register reads,
 * reduce_levels writes; level[n] base, outer and inner step (x, g, z) and constant (count) n;
 * tile_level scalars; level[8 + n] kind of scalar n, slots plus and minus, offset (count, x, g, z),
 * level[12 + n] what it gives and whether it is strict (count, x).
 */
#ifndef TRAINWRIGHT_PASS_H
#define TRAINWRIGHT_PASS_H

#include <string.h>

#include "exponents.h"
#include "machine.h"
#include "stochastic.h"

enum { PASS_KIND, PRODUCT, TABLE, SUM, GREATEST, MAXIMUM, MINIMUM, LENGTH, AND, LANE };
enum { NOTHING, PLUS, MINUS, CONSTANT };
enum { FLOOR, EVEN, UP, RANDOM };
enum { ALWAYS, POSITIVE, NEGATIVE, ZERO };
enum { NO_ROW, READ_ROW, WRITE_ROW };
enum { BY_FIELD, BY_C, BY_A, BY_SCALAR };
enum { NO_SCALAR, VALUE, POWER, SHIFT };
enum { SCALAR_LEVELS = 8, GIVEN_LEVELS = 12, SHIFTS = 4, MOST_POWER = 16 };
enum { NO_TOTAL, TOTAL_SUM, TOTAL_COUNT };
enum { THREADS = 8, VECTOR_REGISTERS = 8, STREAMS = 8, CODE_DEPTH = 64 };
enum { BLOCK = THREADS * MOST_LANES, WIDTH = 36, PRODUCT_BITS = 18, ROW_BITS = 16 };
enum { FRACTION = 16, REST = 10, TABLE_ENTRIES = 64, SLOPE_SHIFT = 16 };

typedef struct {
    int kind, memory, stream, use_k, a, b, c, k, addend, shift, shift_by, rounding;
    int wrap, width, when, keep, d, total;
} Instruction;

typedef struct {
    Instruction code[CODE_DEPTH];
    int64_t held[VECTOR_REGISTERS][BLOCK]; /* (threads, lanes) of each register */
} Engine;

static inline int field(uint64_t *word, int bits)
{
    int value = (int)(*word & ((1u << bits) - 1));
    *word >>= bits;
    return value;
}

static inline Instruction instruction(uint64_t word)
{
    Instruction one; /* members in the order of the layout */
    static const int bits[] = {4, 2, 3, 1, 3, 3, 3, 3, 2, 6, 2, 3, 1, 6, 2, 1, 3, 2};
    int *to = &one.kind;
    for (int i = 0; i < (int)(sizeof bits / sizeof *bits); i++)
        to[i] = field(&word, bits[i]);
    return one;
}

static inline void take_code(Instruction *code, const Descriptor *d)
{
    for (int64_t n = 0; n < d->g; n++) {
        const Level *v = &d->level[n % LEVELS];
        code[d->x + n] = instruction((uint64_t)(n < LEVELS ? v->x : v->g));
    }
}

/* Registers that an instruction reads, as a mask. */
static inline int reads_registers(const Instruction *i)
{
    const int second = i->kind == PRODUCT || i->kind == MAXIMUM || i->kind == MINIMUM || i->kind == AND;
    const int first = (i->kind != LANE && i->memory != READ_ROW) || i->shift_by == BY_A;
    const int third = i->addend == PLUS || i->addend == MINUS || i->shift_by == BY_C || i->when;
    return first << i->a | (!i->use_k && second) << i->b | third << i->c |
           (i->keep && i->when) << i->d;
}

static inline int64_t pass_row(const Descriptor *d, int stream, int64_t row)
{
    const Level *v = &d->level[stream];
    return v->x + row / d->g_register * v->g + row % d->g_register * v->z;
}

static inline int64_t wrapped(int64_t value, int width)
{
    const int64_t half = (int64_t)1 << (width - 1);
    return ((value + half) & (2 * half - 1)) - half;
}

/* What a pass works on. */
typedef struct {
    const Machine *m;
    const Descriptor *d;
    Engine *engine;
    uint32_t stream;
    int lanes, threads, n; /* n = threads x lanes, of this block */
    int64_t first;         /* row of this block */
    const int16_t *rows[STREAMS];
    int64_t constants[STREAMS], shifts[SHIFTS];
} Block;

/* Constants and shifts of a pass; 0 where a strict scalar is negative. */
static int pass_scalars(Block *b)
{
    for (int n = 0; n < STREAMS; n++)
        b->constants[n] = b->d->level[n].count;
    memset(b->shifts, 0, sizeof b->shifts);
    for (int64_t n = 0; n < b->d->tile_level; n++) {
        const Level *one = &b->d->level[SCALAR_LEVELS + n], *given = &b->d->level[GIVEN_LEVELS + n];
        const int64_t value = b->m->exponents[one->x] - b->m->exponents[one->g] + one->z;
        if (given->x && value < 0)
            return 0;
        if (one->count == VALUE)
            b->constants[given->count] = value;
        else if (one->count == POWER)
            b->constants[given->count] = (int64_t)1 << less_of(greater_of(value, 0), MOST_POWER);
        else if (one->count == SHIFT)
            b->shifts[given->count] = less_of(greater_of(value, 0), MOST_SHIFT);
    }
    return 1;
}

static inline void block_random(const Block *b, int number, int64_t *out)
{
    const int rows = MOST_LANES / b->lanes; /* that a key serves */
    for (int t = 0; t < b->threads; t++) {
        const int64_t place = b->d->z + b->first + t;
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

/* The sum or the greatest of each row, in all of its lanes. */
static inline void along(const Block *b, int greatest, const int64_t *a, int64_t *x)
{
    for (int t = 0; t < b->threads; t++) {
        const int64_t *row = a + t * b->lanes;
        int64_t found = row[0];
        for (int l = 1; l < b->lanes; l++)
            found = !greatest ? found + row[l] : row[l] > found ? row[l] : found;
        for (int l = 0; l < b->lanes; l++)
            x[t * b->lanes + l] = wrapped(found, WIDTH);
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
    case PASS_KIND:
        memcpy(value, a, (size_t)n * sizeof *a);
        break;
    case PRODUCT:
        for (int e = 0; e < n; e++)
            value[e] = wrapped(a[e], PRODUCT_BITS) * wrapped(s[e], PRODUCT_BITS);
        break;
    case TABLE:
        for (int e = 0; e < n; e++) {
            const int64_t x = a[e] & ((1 << FRACTION) - 1);
            const int64_t *entry = b->m->tables + 2 * (i->b * TABLE_ENTRIES + (x >> REST));
            value[e] = entry[0] * (1 << SLOPE_SHIFT) + entry[1] * (x & ((1 << REST) - 1));
        }
        break;
    case SUM:
    case GREATEST:
        along(b, i->kind == GREATEST, a, value);
        break;
    case MAXIMUM:
        for (int e = 0; e < n; e++)
            value[e] = a[e] > s[e] ? a[e] : s[e];
        break;
    case MINIMUM:
        for (int e = 0; e < n; e++)
            value[e] = a[e] < s[e] ? a[e] : s[e];
        break;
    case LENGTH:
        for (int e = 0; e < n; e++)
            value[e] = length_of(a[e]);
        break;
    case AND:
        for (int e = 0; e < n; e++)
            value[e] = a[e] & s[e];
        break;
    default:
        for (int e = 0; e < n; e++)
            value[e] = e % b->lanes;
    }
    const int64_t by = i->addend == CONSTANT ? constant : 0;
    const int64_t sign = i->addend == PLUS ? 1 : i->addend == MINUS ? -1 : 0;
    for (int e = 0; e < n; e++)
        value[e] = wrapped(value[e] + sign * c[e] + by, WIDTH);
}

static void pass_round(const Block *b, const Instruction *i, int64_t *value)
{
    const int n = b->n;
    const int64_t *by = b->engine->held[i->shift_by == BY_C ? i->c : i->a];
    int64_t shift[BLOCK], random[BLOCK];
    for (int e = 0; e < n; e++)
        shift[e] = i->shift_by == BY_FIELD    ? i->shift
                   : i->shift_by == BY_SCALAR ? b->shifts[i->shift]
                                              : by[e] & MOST_SHIFT;
    switch (i->rounding) {
    case FLOOR:
        for (int e = 0; e < n; e++)
            value[e] >>= shift[e];
        break;
    case EVEN: /* beyond WIDTH + 1 all shifts give 0 */
        for (int e = 0; e < n; e++) {
            const int64_t s = shift[e] > WIDTH + 1 ? WIDTH + 1 : shift[e], odd = s != 0;
            value[e] = (value[e] + ((int64_t)1 << s >> 1) - odd + (value[e] >> s & odd)) >> s;
        }
        break;
    case UP:
        for (int e = 0; e < n; e++)
            value[e] = ((2 * value[e] >> shift[e]) + 1) >> 1;
        break;
    default:
        block_random(b, i->rounding - RANDOM, random);
        for (int e = 0; e < n; e++) {
            const int64_t first = shift[e] > 9 ? shift[e] - 9 : 0, then = shift[e] - first;
            value[e] = ((value[e] >> first) + ((2 * random[e] + 1) >> (9 - then))) >> then;
        }
    }
}

static void pass_fit(const Block *b, const Instruction *i, int64_t *q)
{
    const int64_t half = (int64_t)1 << (i->width - 1);
    for (int e = 0; e < b->n; e++)
        q[e] = i->wrap ? wrapped(q[e], i->width) : q[e] < -half ? -half : q[e] < half ? q[e] : half - 1;
}

static void pass_keep(const Block *b, const Instruction *i, const int64_t *q)
{
    const int64_t *c = b->engine->held[i->c];
    int64_t *to = b->engine->held[i->d];
    for (int e = 0; e < b->n; e++) {
        const int chosen = i->when == ALWAYS     ? 1
                           : i->when == POSITIVE ? c[e] > 0
                           : i->when == NEGATIVE ? c[e] < 0
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
            put_trace(m, TRACE_PE2, row, to);
    }
}

/* All operands are read before any result is written. */
static int read_streams(Machine *m, const Descriptor *d, Block *b)
{
    const int64_t rows = d->x_register * d->g_register, size = rows * b->lanes;
    int16_t *copy = reserve(m, SNAPSHOT, (size_t)(STREAMS * size) * sizeof(int16_t));
    if (!copy)
        return 0;
    for (int n = 0; n < STREAMS; n++) {
        b->rows[n] = copy + n * size;
        for (int64_t row = 0; d->z_register >> n & 1 && row < rows; row++)
            memcpy(copy + n * size + row * b->lanes, m->pad + pass_row(d, n, row) * b->lanes,
                   (size_t)b->lanes * sizeof(int16_t));
    }
    return 1;
}

/* 0 where memory is short, or a scalar is refused. */
static int pass(Machine *m, const Descriptor *d, Engine *engine, uint32_t stream)
{
    Block b = {.m = m, .d = d, .engine = engine, .stream = stream, .lanes = (int)m->lanes};
    const int64_t rows = d->x_register * d->g_register;
    int64_t total = 0, count = 0;
    if (!read_streams(m, d, &b))
        return 0;
    if (!pass_scalars(&b)) {
        m->wrong_exponent = 1;
        return 0;
    }
    for (b.first = 0; b.first < rows; b.first += THREADS) {
        b.threads = rows - b.first < THREADS ? (int)(rows - b.first) : THREADS;
        b.n = b.threads * b.lanes;
        for (const Instruction *i = engine->code + d->x; i < engine->code + d->x + d->g; i++) {
            int64_t q[BLOCK], read[BLOCK];
            const int16_t *words = b.rows[i->stream] + b.first * b.lanes;
            for (int e = 0; i->memory == READ_ROW && e < b.n; e++)
                read[e] = words[e];
            pass_value(&b, i, i->memory == READ_ROW ? read : engine->held[i->a], q);
            pass_round(&b, i, q);
            pass_fit(&b, i, q);
            for (int e = 0; i->total && e < b.n; e += b.lanes)
                *(i->total == TOTAL_SUM ? &total : &count) += q[e];
            if (i->keep)
                pass_keep(&b, i, q);
            if (i->memory == WRITE_ROW)
                pass_write(m, &b, i->stream, q);
        }
    }
    m->sums[d->slot] = (m->sums[d->slot] + total) & (((int64_t)1 << SUM_BITS) - 1);
    m->saturations[d->slot] = (m->saturations[d->slot] + count) & UINT32_MAX;
    return 1;
}

#endif
