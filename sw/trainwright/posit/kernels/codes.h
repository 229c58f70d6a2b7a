/* Codes, as int64, from and to values on the grid; and operations on codes. */

/* Constants of a format for reading and writing words. */
typedef struct {
    grid g;
    INT n, nar, zero, regime;
} coding;

static coding coding_of(int n, int es) {
    coding c;
    c.g = grid_of(n, es);
    c.n = n;
    c.nar = (INT)((UINT)1 << (n - 1)); /* of 32 bits: in double only, positive */
    c.zero = (((INT)1 << (BITS - 2 - FRACTION)) >> es);
    c.regime = c.g.regime;
    return c;
}

static inline REAL decoded(int64_t code, coding c) {
    const INT whole = (INT)code, under = c.nar - 1;
    const INT word = (whole > c.nar ? -whole : whole) & under;
    const INT above = -((word >> (c.n - 2)) & 1); /* -1: the run is of ones */
    /* A run of m leading bits leaves a number below 2^(n - 1 - m): its length is an exponent. */
    const INT left = (word ^ above) & under;
    const INT length = (bits_of((REAL)left) >> FRACTION) - (INFINITE >> (FRACTION + 1)) + 1;
    const INT run = c.n - 1 - (length < 0 ? 0 : length);
    const INT k = above ? run - 1 : -run;
    const INT spare = c.n - 2 - run < 0 ? 0 : c.n - 2 - run;
    const INT tail = word & (((INT)1 << spare) - 1);
    INT bits = (((k + c.zero) << c.regime) | tail << (c.regime - spare)) - EXPONENT_ONE;
    bits |= whole > c.nar ? ~MAGNITUDE : 0;
    bits = whole == 0 ? 0 : bits;
    bits = whole == c.nar ? INFINITE | (EXPONENT_ONE >> 1) : bits;
    return real_of(bits);
}

static inline int64_t encoded(REAL x, coding c) {
    const INT bits = bits_of(x), magnitude = bits & MAGNITUDE;
    const INT size = magnitude + EXPONENT_ONE, k = (size >> c.regime) - c.zero;
    const INT tail = size & (((INT)1 << c.regime) - 1);
    const INT spare = c.n - 1 - (k >= 0 ? k + 2 : 1 - k); /* -1 for maxpos, whose run nothing ends */
    const INT fits = spare < 0 ? 0 : spare > c.n ? c.n : spare;
    const INT ones = k >= 0 ? ((INT)2 << (k > 30 ? 30 : k + 1)) - 2 : 1;
    INT word = ones << fits | tail >> (c.regime - fits);
    word = spare < 0 ? c.nar - 1 : word;
    word = bits < 0 ? 2 * c.nar - word : word;
    word = magnitude == 0 ? 0 : word;
    return magnitude > INFINITE ? c.nar : word;
}

void posit_encode(const REAL *restrict x, int64_t *restrict out, int64_t count, int64_t n,
                  int64_t es) {
    const coding c = coding_of((int)n, (int)es);
    for (int64_t i = 0; i < count; i++) out[i] = encoded(x[i], c);
}

/* Returns a number other than 0 if there is a code outside 0 .. 2^n - 1. */
int64_t posit_decode(const int64_t *restrict codes, REAL *restrict out, int64_t count, int64_t n,
                     int64_t es) {
    const coding c = coding_of((int)n, (int)es);
    uint64_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        any |= (uint64_t)codes[i];
        out[i] = decoded(codes[i], c);
    }
    return (int64_t)(any >> n);
}

enum { CHUNK = 1024 };

#define OPERATION(name, sign)                                                                     \
    int64_t posit_codes_##name(const int64_t *a, int64_t step_a, const int64_t *b,                \
                               int64_t step_b, int64_t *restrict out, int64_t count, int64_t n,   \
                               int64_t es) {                                                      \
        const coding c = coding_of((int)n, (int)es);                                              \
        REAL x[CHUNK], y[CHUNK];                                                                  \
        int64_t bad = 0;                                                                          \
        for (int64_t i = 0; i < count; i += CHUNK) {                                              \
            const int64_t some = count - i < CHUNK ? count - i : CHUNK;                           \
            if (step_a || i == 0) bad |= posit_decode(a + i * step_a, x, step_a ? some : 1, n, es); \
            if (step_b || i == 0) bad |= posit_decode(b + i * step_b, y, step_b ? some : 1, n, es); \
            if (!step_a)                                                                          \
                for (int64_t j = 1; j < some; j++) x[j] = x[0];                                   \
            if (!step_b)                                                                          \
                for (int64_t j = 1; j < some; j++) y[j] = y[0];                                   \
            for (int64_t j = 0; j < some; j++)                                                    \
                out[i + j] = encoded(rounded(x[j] sign y[j], c.g), c);                            \
        }                                                                                         \
        return bad;                                                                               \
    }

OPERATION(add, +)
OPERATION(sub, -)
OPERATION(mul, *)
OPERATION(div, /)
#undef OPERATION
