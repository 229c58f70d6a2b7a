/* Matrix products with every product and every sum rounded, in order of k.

   A panel of B, DEPTH x WIDTH, is packed once and met with every row of A; WIDTH sums of one row are
   kept at a time. Where a look at the largest and smallest magnitudes shows that no product and no
   sum of a block leaves the range in which the word has two or more fraction bits, rounding is one
   addition and one subtraction of a power of two; elsewhere it is the rule of lanes.h. */

#define DEPTH 64
#define WIDEST 64

/* What the quick rounding needs; numbers are twice their value, so that the exponent field of one
   is a multiple of 2^es, and its top bit says which regimes grow upwards. */
typedef struct {
    int es;
    INT regimes;      /* mask of the regime's number in the exponent field */
    INT base;         /* bits lost at regime 0 or -1, in the exponent field */
    int lowest, high; /* scales: products from lowest on, sums below 2^high; none: high < lowest */
} quick;

static quick quick_of(int n, int es) {
    quick q;
    q.es = es;
    q.regimes = ((MAGNITUDE >> 1) >> es) & ~(EXPONENT_ONE - 1);
    q.base = (INT)(FRACTION + es + 3 - n) * EXPONENT_ONE;
    /* Products keep 1 fraction bit; below 2^high sums have 6, and grow by less than 2 in DEPTH. */
    q.lowest = n - 4 - es >= 0 ? -((n - 3 - es) << es) : 1;
    q.high = n - 9 - es >= 0 ? (n - 8 - es) << es : -1;
    return q;
}

static inline REAL quickly(REAL x, quick q) {
    const INT bits = bits_of(x);
    const INT up = (INT)((UINT)bits << 1) >> (BITS - 1); /* -1 from one on */
    const INT regime = ((bits >> q.es) ^ ~up) & q.regimes;
    const INT power = bits & ~(EXPONENT_ONE - 1); /* with the sign */
    const REAL c = real_of(power + regime + q.base);
    return (x + c) - c;
}

/* Largest and smallest magnitude other than 0 of count numbers, as patterns: {0, all} if none. */
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

/* Whether sums a, and products of rows and panels of extents b and c, allow the quick rounding. */
static int stays(extent a, extent b, extent c, quick q) {
    const int bias = (int)(MAGNITUDE >> (FRACTION + 1));
    const int top = (int)(b.most >> FRACTION) + (int)(c.most >> FRACTION) - 2 * bias;
    if (q.high < q.lowest) return 0;
    if (a.most >= INFINITE || b.most >= INFINITE || c.most >= INFINITE) return 0;
    /* below DEPTH 2^(top + 2) + 2^(scale + 1) <= 2^(max + 9) <= 2^(high - 1) */
    if (a.most && (int)(a.most >> FRACTION) - bias + 10 > q.high) return 0;
    if (b.most && c.most && top + 10 > q.high) return 0;
    if (a.most && (int)(a.least >> FRACTION) - bias < q.lowest) return 0;
    return !b.most || !c.most ||
           (int)(b.least >> FRACTION) + (int)(c.least >> FRACTION) - 2 * bias >= q.lowest;
}

enum { RULE, QUICK, TO_ODD };

/* sums[j] += a[k] panel[k][j], width and way constants. Quick: a and sums are doubled. */
static inline void block(REAL *restrict sums, const REAL *restrict a,
                               const REAL *restrict panel, int depth, const int width,
                               const int way, grid g, quick q) {
    REAL kept[WIDEST];
    for (int j = 0; j < width; j++) kept[j] = way == QUICK ? 2 * sums[j] : sums[j];
    for (int k = 0; k < depth; k++) {
        const REAL factor = way == QUICK ? 2 * a[k] : a[k];
        const REAL *restrict row = panel + k * width;
        for (int j = 0; j < width; j++) {
            if (way == QUICK)
                kept[j] = quickly(kept[j] + quickly(factor * row[j], q), q);
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

#define WAYS(width)                                                                               \
    case width:                                                                                   \
        if (way == QUICK) block(sums, a, panel, depth, width, QUICK, g, q);                 \
        else if (way == RULE) block(sums, a, panel, depth, width, RULE, g, q);              \
        else block(sums, a, panel, depth, width, TO_ODD, g, q);                             \
        break;

static void any_block(REAL *restrict sums, const REAL *restrict a,
                            const REAL *restrict panel, int depth, int width, int way,
                            grid g, quick q) {
    switch (width) {
        WAYS(64)
        WAYS(32)
        WAYS(16)
    }
}
#undef WAYS

/* c (m, n) += a (m, k) b (k, n), row-major. c holds what the sums start from. */
static void product(const REAL *a, const REAL *b, REAL *c, int64_t m, int64_t depth,
                          int64_t columns, int to_odd, grid g, quick q) {
    REAL panel[DEPTH * WIDEST], sums[WIDEST];
    for (int64_t j = 0; j < columns;) {
        const int64_t left = columns - j;
        const int width = left > 32 ? 64 : left > 16 ? 32 : 16;
        const int used = left < width ? (int)left : width;
        for (int64_t k = 0; k < depth; k += DEPTH) {
            const int steps = depth - k < DEPTH ? (int)(depth - k) : DEPTH;
            memset(panel, 0, sizeof panel);
            for (int r = 0; r < steps; r++)
                memcpy(panel + r * width, b + (k + r) * columns + j, used * sizeof(REAL));
            const extent of_panel = extent_of(panel, (int64_t)steps * width);
            memset(sums, 0, sizeof sums);
            for (int64_t i = 0; i < m; i++) {
                const REAL *row = a + i * depth + k;
                memcpy(sums, c + i * columns + j, used * sizeof(REAL));
                int way = to_odd ? TO_ODD : RULE;
                if (!to_odd && stays(extent_of(sums, width),
                                           extent_of(row, steps), of_panel, q))
                    way = QUICK;
                any_block(sums, row, panel, steps, width, way, g, q);
                memcpy(c + i * columns + j, sums, used * sizeof(REAL));
            }
        }
        j += used;
    }
}

/* A batch of them; a stride of 0 repeats an operand. */
void posit_sequential(const REAL *a, int64_t step_a, const REAL *b, int64_t step_b, REAL *c,
                            int64_t batch, int64_t m, int64_t depth, int64_t columns,
                      int64_t to_odd, int64_t n, int64_t es) {
    const grid g = grid_of((int)n, (int)es);
    const quick q = quick_of((int)n, (int)es);
    for (int64_t i = 0; i < batch; i++)
        product(a + i * step_a, b + i * step_b, c + i * m * columns, m, depth, columns,
                      to_odd != 0, g, q);
}
