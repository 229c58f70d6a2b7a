/* Matrix products with every product and every sum rounded, in order of k.

   A panel of B, DEPTH x WIDTH, is packed once and met with every row of A; WIDTH sums of one row are
   kept at a time. Where a look at the largest and smallest magnitudes shows that no product and no
   sum of a block leaves the range in which the word has two or more fraction bits, rounding is one
   addition and one subtraction of a power of two; elsewhere it is the rule of lanes.h. */

#if defined(__AVX512BW__) && !defined(DOUBLE)
#define TABLED 1
#define DEPTH_BITS 7
/* Eight vectors of sums: each product and sum waits some 19 cycles for the one before, and a
   processor that starts four vector instructions in a cycle runs dry with four vectors. */
#define WIDEST 128
#include <immintrin.h>
#else
#define DEPTH_BITS 6
#define WIDEST 64 /* 128 would take all registers of AVX2 */
#if defined(__AVX2__) && defined(__FMA__) && !defined(DOUBLE)
#define SHUFFLED 1
#include <immintrin.h>
#endif
#endif

#define DEPTH (1 << DEPTH_BITS)

/* Constants for the quick rounding. It takes doubled numbers: the exponent field of 1 is then a multiple
   of 2^es, so that its bits above es count regimes, and its top bit is set for regimes from 0 on. */
typedef struct {
    int es;
    INT regimes;      /* mask of the regime's number in the exponent field */
    INT base;         /* bits lost at regime 0 or -1, in the exponent field */
    int lowest, high; /* scales: products from lowest on, sums below 2^high; none: high < lowest */
#ifdef TABLED
    uint16_t table[64]; /* upper halves of c by the last 6 bits of x's exponent field: looked_up */
    float one;          /* 1, which the compiler must not know: see block_tabled */
#endif
#ifdef SHUFFLED
    int shuffled;     /* whether block_shuffled serves */
    uint8_t lost[32]; /* fraction bits lost, by the last 4 bits of the regime; the same 16 twice */
#endif
} quick;

/* Return the fraction bits of a value of this scale; below 0 if not all exponent bits fit. */
static inline int bits_at(int scale, int n, int es) {
    const int k = scale >> es;
    return n - 1 - es - (k < 0 ? 1 - k : k + 2);
}

static quick quick_of(int n, int es) {
    quick q;
    q.es = es;
    q.regimes = ((MAGNITUDE >> 1) >> es) & ~(EXPONENT_ONE - 1);
    q.base = (INT)(FRACTION + es + 3 - n) * EXPONENT_ONE;
    /* Products keep 1 fraction bit; below 2^high sums have 6, and rounding makes
       them grow by less than 4 in DEPTH: (1 + 2^-7)^128 < 4. */
    q.lowest = n - 4 - es >= 0 ? -((n - 3 - es) << es) : 1;
    q.high = n - 9 - es >= 0 ? (n - 8 - es) << es : -1;
#ifdef TABLED
    q.one = (float)(n > 0);
    /* Sums are multiples of the last digit of the smallest product, which must be in the table. */
    while (q.lowest < 0 && q.lowest - bits_at(q.lowest, n, es) < q.high - 64) q.lowest++;
    for (int scale = q.high - 64; scale < q.high; scale++) {
        const int bits = bits_at(scale, n, es);
        const float c = real_of((INT)(127 + scale + FRACTION - (bits < 0 ? 0 : bits)) << FRACTION);
        q.table[(scale + 127) & 63] = (uint16_t)(bits_of(1.5f * c) >> 16);
    }
#endif
#ifdef SHUFFLED
    q.shuffled = es == 2 && n % 2 == 0; /* n even: regime 0 loses an even number of bits */
    if (q.shuffled) { /* sums are multiples of the last digit of the smallest product */
        while (q.lowest < 0 && q.lowest - bits_at(q.lowest, n, es) < q.high - 64) q.lowest++;
        for (int scale = q.high - 64; scale < q.high; scale += 4) {
            const int bits = bits_at(scale, n, es), at = (scale >> es) & 15;
            q.lost[at] = q.lost[at + 16] = (uint8_t)(FRACTION - (bits < 0 ? 0 : bits));
        }
    }
#endif
    return q;
}

/* Round x as (x + c) - c. c has the sign of x, and an exponent at which the last digit of a float is the
   last digit that the word of x keeps: base more than x, and 1 more for each regime away from 0 or -1. */
static inline REAL quickly(REAL x, quick q) {
    const INT bits = bits_of(x);
    const INT up = (INT)((UINT)bits << 1) >> (BITS - 1); /* -1 from one on */
    const INT regime = ((bits >> q.es) ^ ~up) & q.regimes;
    const INT power = bits & ~(EXPONENT_ONE - 1); /* with the sign */
    const REAL c = real_of(power + regime + q.base);
    return (x + c) - c;
}

/* Largest and smallest magnitude other than 0 of some numbers, as patterns; 0 and MAGNITUDE if none. */
typedef struct { INT most, least; } extent;

static inline extent extent_of(const REAL *restrict x, int64_t count) {
    extent e = {0, MAGNITUDE};
    for (int64_t i = 0; i < count; i++) {
        const INT size = bits_of(x[i]) & MAGNITUDE;
        const INT other = size == 0 ? MAGNITUDE : size;
        e.most = size > e.most ? size : e.most;
        e.least = other < e.least ? other : e.least;
    }
    return e;
}

/* Magnitudes from least to most, as patterns. 0 belongs to every range. */
typedef struct { INT least, most; } range;

/* Return the range of numbers with exponents from lowest to highest. */
static range range_of(int lowest, int highest) {
    const int bias = (int)(MAGNITUDE >> (FRACTION + 1));
    if (highest > bias) highest = bias;
    if (highest < -bias || highest < lowest) return (range){MAGNITUDE, 0};
    return (range){lowest <= -bias ? 1 : (INT)(lowest + bias) << FRACTION,
                   ((INT)(highest + bias + 1) << FRACTION) - 1};
}

static inline int all_within(const REAL *restrict x, int64_t count, range r) {
    INT outside = 0;
    for (int64_t i = 0; i < count; i++) {
        const INT size = bits_of(x[i]) & MAGNITUDE;
        outside |= (size > r.most) | ((UINT)size - 1 < (UINT)r.least - 1);
    }
    return !outside;
}

/* Sums that allow the quick rounding. With a largest exponent `top` of products and `scale` of sums
   they stay below DEPTH 2^(top + 2) + 2^(scale + 1) <= 2^(max + DEPTH_BITS + 3) <= 2^(high - 2). */
static int highest(const quick *q) { return q->high - 5 - DEPTH_BITS; }

static range sums_for(const quick *q) { return range_of(q->lowest, highest(q)); }

/* Return the range of factors whose products with numbers of a finite extent allow the quick rounding. */
static range factors_for(extent e, const quick *q) {
    const int bias = (int)(MAGNITUDE >> (FRACTION + 1));
    if (e.most == 0) return range_of(-bias, bias);
    return range_of(q->lowest - (int)(e.least >> FRACTION) + bias,
                    highest(q) - (int)(e.most >> FRACTION) + bias);
}

enum { RULE, QUICK, TO_ODD };

/* DEPTH x WIDTH numbers of B, in lines of whole vectors, and a line that is read and not used. */
typedef struct {
    _Alignas(64) REAL values[(DEPTH + 1) * WIDEST];
#ifdef TABLED
    int32_t keys[(DEPTH + 1) * WIDEST];
#endif
} panel;

/* sums[j] += a[k] panel[k][j], width and way constants. Quick: a and sums are doubled. */
static inline void block(REAL *restrict sums, const REAL *restrict a,
                               const REAL *restrict panel, int depth, const int width,
                               const int way, grid g, const quick *q) {
    REAL kept[WIDEST];
    for (int j = 0; j < width; j++) kept[j] = way == QUICK ? 2 * sums[j] : sums[j];
    for (int k = 0; k < depth; k++) {
        const REAL factor = way == QUICK ? 2 * a[k] : a[k];
        const REAL *restrict row = panel + k * width;
        for (int j = 0; j < width; j++) {
            if (way == QUICK)
                kept[j] = quickly(kept[j] + quickly(factor * row[j], *q), *q);
#ifdef DOUBLE
            else if (way == TO_ODD)
                kept[j] = rounded(kept[j] + rounded(product_to_odd(factor, row[j]), g), g);
#endif
            else
                kept[j] = rounded(kept[j] + rounded(factor * row[j], g), g);
        }
    }
    for (int j = 0; j < width; j++) sums[j] = way == QUICK ? kept[j] / 2 : kept[j];
}

#ifdef TABLED
/* The number c for x, 1.5 times the power of two whose last digit is the last one that x keeps:
   (x + c) - c is x rounded. index has the exponent field in the lower bits of each upper half; of
   64 scales one instruction takes c, where arithmetic needs 7. The lower half of c is any entry
   of the table: an even number of last digits, which changes no rounding. */
static inline __m512 looked_up(__m512i index, __m512i low, __m512i high) {
    return _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, index, high));
}

/* Set the keys of a panel's numbers: exponent fields in the lower bits of upper halves, and below
   them the 16 upper bits of fractions. */
static void set_keys(panel *p, int count) {
    for (int i = 0; i < count; i++) p->keys[i] = bits_of(p->values[i]) >> (FRACTION - 16);
}

/* Number that makes the key of b the index of factor b: the exponent of factor, and a fraction that
   carries into the exponent field where the significands' product is 2 or more. Fractions have 11
   bits, as products have 24 digits: no quotient is rounded down to an integer. */
static inline int32_t scale_of(float factor) {
    const INT bits = bits_of(factor);
    const float significand = real_of((bits & (EXPONENT_ONE - 1)) | bits_of(1));
    const int carry = 4096 - (int)ceilf(4096 / significand);
    return ((bits >> (FRACTION - 16)) & ~0xffff) - (127 << 16) + (carry << 5);
}

/* Return the rounded products of a factor and vector `at` of a panel. */
static inline __m512 products(const panel *p, int at, float factor, int32_t scale, __m512i low,
                              __m512i high) {
    const __m512 b = _mm512_load_ps(p->values + 16 * at);
    const __m512i key = _mm512_load_si512(p->keys + 16 * at);
    const __m512 c = looked_up(_mm512_add_epi32(_mm512_set1_epi32(scale), key), low, high);
    /* Products are exact, so that their sums with c may be fused. */
    return _mm512_sub_ps(_mm512_fmadd_ps(_mm512_set1_ps(factor), b, c), c);
}

/* block for the quick way, in vectors of 16 sums. Nine instructions for a product and a sum, spread
   over all ports: an index by a sum of keys and one by a multiplication, one sum on the multipliers.
   A sum waits some 19 cycles for the one before; the next line's products fill the ports meanwhile. */
static inline void block_tabled(float *restrict sums, const float *restrict a,
                                const panel *restrict p, int depth, const int vectors,
                                const quick *q) {
    const __m512i low = _mm512_loadu_si512(q->table), high = _mm512_loadu_si512(q->table + 32);
    const __m512 one = _mm512_set1_ps(q->one);
    const __m512i shift = _mm512_set1_epi16(1 << (32 - FRACTION));
    __m512 kept[WIDEST / 16], next[WIDEST / 16];
    float factors[DEPTH + 1];
    int32_t scales[DEPTH + 1]; /* ready before the loop: each would wait for a move of registers */
    for (int k = 0; k < depth; k++) {
        factors[k] = a[k];
        scales[k] = scale_of(a[k]);
    }
    factors[depth] = 0;
    scales[depth] = 0;
    for (int j = 0; j < vectors; j++) {
        kept[j] = _mm512_loadu_ps(sums + 16 * j);
        next[j] = products(p, j, factors[0], scales[0], low, high);
    }
    for (int k = 1; k <= depth; k++) {
        for (int j = 0; j < vectors; j++) {
            const __m512 sum = _mm512_add_ps(kept[j], next[j]);
            next[j] = products(p, k * vectors + j, factors[k], scales[k], low, high);
            const __m512i index = _mm512_mulhi_epu16(_mm512_castps_si512(sum), shift);
            const __m512 d = looked_up(index, low, high);
            kept[j] = _mm512_sub_ps(_mm512_fmadd_ps(sum, one, d), d);
        }
    }
    for (int j = 0; j < vectors; j++) _mm512_storeu_ps(sums + 16 * j, kept[j]);
}
#define QUICKLY(width) block_tabled(sums, a, p, depth, width / 16, q)
#elif defined(SHUFFLED)
/* The number c of quickly for es = 2: a shuffle takes the bits that 16 regimes lose. The regime is in
   the lowest byte of a lane; what the bytes above it take leaves the lane by the shift, all but the
   last bit of the number of regime 0, which is 0. */
static inline __m256 shuffled(__m256 x, __m256i lost) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i more = _mm256_shuffle_epi8(lost, _mm256_srli_epi32(bits, FRACTION + 2));
    const __m256i power = _mm256_and_si256(bits, _mm256_set1_epi32(~(EXPONENT_ONE - 1)));
    return _mm256_castsi256_ps(_mm256_add_epi32(power, _mm256_slli_epi32(more, FRACTION)));
}

/* block for the quick way, in vectors of 8 sums; sums and factors are doubled as there. */
static inline void block_shuffled(float *restrict sums, const float *restrict a,
                                  const float *restrict panel, int depth, const int vectors,
                                  const quick *q) {
    const __m256i lost = _mm256_loadu_si256((const __m256i *)q->lost);
    const __m256 two = _mm256_set1_ps(2), half = _mm256_set1_ps(0.5f);
    __m256 kept[WIDEST / 8];
    for (int j = 0; j < vectors; j++) kept[j] = _mm256_mul_ps(two, _mm256_loadu_ps(sums + 8 * j));
    for (int k = 0; k < depth; k++) {
        const __m256 factor = _mm256_set1_ps(2 * a[k]);
        for (int j = 0; j < vectors; j++) {
            const __m256 b = _mm256_loadu_ps(panel + 8 * (k * vectors + j));
            const __m256 c = shuffled(_mm256_mul_ps(factor, b), lost);
            /* The product is exact, so that its sum with c may be fused. */
            const __m256 x = _mm256_sub_ps(_mm256_fmadd_ps(factor, b, c), c);
            const __m256 sum = _mm256_add_ps(kept[j], x);
            const __m256 d = shuffled(sum, lost);
            kept[j] = _mm256_sub_ps(_mm256_add_ps(sum, d), d);
        }
    }
    for (int j = 0; j < vectors; j++) _mm256_storeu_ps(sums + 8 * j, _mm256_mul_ps(half, kept[j]));
}
#define QUICKLY(width)                                                                            \
    do {                                                                                          \
        if (q->shuffled) block_shuffled(sums, a, p->values, depth, width / 8, q);                 \
        else block(sums, a, p->values, depth, width, QUICK, g, q);                                \
    } while (0)
#else
#define QUICKLY(width) block(sums, a, p->values, depth, width, QUICK, g, q)
#endif

#define WAYS(width)                                                                               \
    case width:                                                                                   \
        if (way == QUICK && all_within(sums, width, quick_sums)) QUICKLY(width);                  \
        else if (way == TO_ODD) block(sums, a, p->values, depth, width, TO_ODD, g, q);            \
        else block(sums, a, p->values, depth, width, RULE, g, q);                                 \
        break;

/* block of one of the widths; takes RULE in place of QUICK where a sum is outside quick_sums. */
static void any_block(REAL *restrict sums, const REAL *restrict a,
                            const panel *restrict p, int depth, int width, int way,
                            range quick_sums, grid g, const quick *q) {
    switch (width) {
#ifdef TABLED
        WAYS(128)
#endif
        WAYS(64)
        WAYS(32)
        WAYS(16)
    }
}
#undef WAYS

/* Add a (m, k) b (k, n) to c (m, n), row-major: sums start from the contents of c. */
static void product(const REAL *a, const REAL *b, REAL *c, int64_t m, int64_t depth,
                          int64_t columns, int to_odd, grid g, const quick *q) {
    panel p;
    REAL sums[WIDEST];
    for (int64_t j = 0; j < columns;) {
        const int64_t left = columns - j;
        /* 128 sums take less time than twice 64, from 97 columns on. */
        const int width = WIDEST > 64 && left > 96 ? 128 : left > 32 ? 64 : left > 16 ? 32 : 16;
        const int used = left < width ? (int)left : width;
        for (int64_t k = 0; k < depth; k += DEPTH) {
            const int steps = depth - k < DEPTH ? (int)(depth - k) : DEPTH;
            memset(p.values, 0, sizeof p.values);
            for (int r = 0; r < steps; r++)
                memcpy(p.values + r * width, b + (k + r) * columns + j, used * sizeof(REAL));
#ifdef TABLED
            set_keys(&p, (steps + 1) * width);
#endif
            const extent of_panel = extent_of(p.values, (int64_t)steps * width);
            const int quickly = !to_odd && q->lowest <= q->high && of_panel.most < INFINITE;
            const range quick_factors = factors_for(of_panel, q), quick_sums = sums_for(q);
            memset(sums, 0, sizeof sums);
            for (int64_t i = 0; i < m; i++) {
                const REAL *row = a + i * depth + k;
                REAL *line = c + i * columns + j, *kept = used == width ? line : sums;
                int way = to_odd ? TO_ODD : RULE;
                /* The compiler makes whole vectors of constant counts. */
                if (quickly && (steps == DEPTH ? all_within(row, DEPTH, quick_factors)
                                               : all_within(row, steps, quick_factors)))
                    way = QUICK;
                if (kept == sums) memcpy(sums, line, used * sizeof(REAL));
                any_block(kept, row, &p, steps, width, way, quick_sums, g, q);
                if (kept == sums) memcpy(line, sums, used * sizeof(REAL));
            }
        }
        j += used;
    }
}

/* Add the products of a batch; a stride of 0 repeats an operand. */
void posit_sequential(const REAL *a, int64_t step_a, const REAL *b, int64_t step_b, REAL *c,
                            int64_t batch, int64_t m, int64_t depth, int64_t columns,
                      int64_t to_odd, int64_t n, int64_t es) {
    const grid g = grid_of((int)n, (int)es);
    const quick q = quick_of((int)n, (int)es);
    for (int64_t i = 0; i < batch; i++)
        product(a + i * step_a, b + i * step_b, c + i * m * columns, m, depth, columns,
                      to_odd != 0, g, &q);
}
