/* Exact sums of products, rounded once: what a float64 sum cannot decide. See trainwright.posit.exact. */

enum {
    LIMBS = 66,       /* of 32 bits: places up to 4 S = 1920, a product of 62 bits, carries, sign */
    SIGNIFICAND = 31, /* bits kept of a significand: posits have at most 30 */
    UNIT = 2 * (SIGNIFICAND - 1) /* a product's last bit is this far below its scale */
};
#define LOW 0xFFFFFFFFll

/* Return the signed significand of 31 bits, and the scale; 0 and 0 for 0. */
static inline int64_t parts(double x, int *scale) {
    const int64_t bits = bits_of(x), size = bits & MAGNITUDE;
    if (size == 0) {
        *scale = 0;
        return 0;
    }
    *scale = (int)(size >> FRACTION) - 1023;
    const int64_t fraction = (size >> (FRACTION - SIGNIFICAND + 1)) & ((1ll << (SIGNIFICAND - 1)) - 1);
    const int64_t s = fraction + (1ll << (SIGNIFICAND - 1));
    return bits < 0 ? -s : s;
}

/* Add term 2^place, |term| below 2^62. Limbs are signed and have 64 bits, so carries may wait: settle
   moves them. */
static inline void deposit(int64_t *limbs, int64_t term, int place) {
    const int64_t sign = term < 0 ? -1 : 1, size = sign * term;
    const int first = place >> 5, shift = place & 31;
    const int64_t low = (size & LOW) << shift, high = (size >> 32) << shift;
    limbs[first] += sign * (low & LOW);
    limbs[first + 1] += sign * ((low >> 32) + (high & LOW));
    limbs[first + 2] += sign * (high >> 32);
}

static void settle(int64_t *limbs) {
    for (int i = 0; i + 1 < LIMBS; i++) {
        limbs[i + 1] += limbs[i] >> 32;
        limbs[i] &= LOW;
    }
}

/* Return the sum times 2^-unit, rounded to odd at 33 digits or more. A second rounding, to the at
   most 30 digits of a posit, then gives the same posit as one rounding of the exact sum. */
static double leave(int64_t *limbs, int unit) {
    settle(limbs);
    const int negative = limbs[LIMBS - 1] < 0;
    if (negative) {
        for (int i = 0; i < LIMBS; i++) limbs[i] = -limbs[i];
        settle(limbs);
    }
    int top = LIMBS - 1;
    while (top > 2 && limbs[top] == 0) top--;
    int64_t rest = 0;
    for (int i = 0; i < top - 1; i++) rest |= limbs[i];
    /* A window of 33 to 52 bits, which a double holds: the upper limb, and bits of the next one. */
    const int few = limbs[top] < 1 << 20, kept = few ? 32 : 20;
    const int64_t window = limbs[top] << kept | limbs[top - 1] >> (32 - kept);
    rest |= limbs[top - 1] & ((1ll << (32 - kept)) - 1);
    const double value = ldexp((double)(window | (rest != 0)), 32 * top - kept - unit);
    return negative ? -value : value;
}

/* Return start + sum of x y, rounded once to the format. Operands are values of the format and no NaN;
   largest is the largest scale S of the format. */
static double exact(double start, const double *x, int64_t step_x, const double *y, int64_t step_y,
                    int64_t depth, int largest, grid g) {
    int64_t limbs[LIMBS] = {0};
    int scale_x, scale_y;
    for (int64_t k = 0; k < depth; k++) {
        const int64_t s = parts(x[k * step_x], &scale_x), t = parts(y[k * step_y], &scale_y);
        deposit(limbs, s * t, scale_x + scale_y + 2 * largest);
    }
    const int64_t s = parts(start, &scale_x);
    deposit(limbs, s, scale_x + 2 * largest + SIGNIFICAND - 1);
    return rounded(leave(limbs, 2 * largest + UNIT), g);
}

/* Return the exponent of the last digit of a posit x. All posits of magnitude |x| or more are multiples
   of this power of two. size is the bit pattern of |x|; MAGNITUDE, for no value, stands for maxpos. */
static int64_t last_of(int64_t size, int n, int es, int largest) {
    const int scale = size == MAGNITUDE ? largest : (int)(size >> FRACTION) - 1023;
    const int k = scale >> es, digits = n - 1 - (k < 0 ? -k : k + 1) - es;
    const int last = digits > 1 ? scale - digits + 1 : scale;
    return last < -largest ? -largest : last;
}

/* Add the square of a value to length, and keep the smallest magnitude other than 0 as a bit pattern. */
static inline void look(double v, double *length, int64_t *least) {
    const int64_t size = bits_of(v) & MAGNITUDE, other = size == 0 ? MAGNITUDE : size;
    *length += v * v;
    *least = other < *least ? other : *least;
}

/* Euclidean length of each of count rows, and the pattern of its smallest magnitude but 0
   (MAGNITUDE if there is none). Sixteen partial sums, because a single sum does not vectorise. */
static void survey_rows(const double *restrict x, int64_t count, int64_t depth,
                        double *restrict length, int64_t *restrict least) {
    enum { LANES = 16 };
    for (int64_t i = 0; i < count; i++, x += depth) {
        double squares[LANES] = {0};
        int64_t small[LANES];
        for (int q = 0; q < LANES; q++) small[q] = MAGNITUDE;
        int64_t k = 0;
        for (; k + LANES <= depth; k += LANES)
            for (int q = 0; q < LANES; q++) look(x[k + q], squares + q, small + q);
        for (; k < depth; k++) look(x[k], squares, small);
        length[i] = 0, least[i] = MAGNITUDE;
        for (int q = 0; q < LANES; q++) {
            length[i] += squares[q];
            least[i] = small[q] < least[i] ? small[q] : least[i];
        }
        length[i] = sqrt(length[i]);
    }
}

/* Survey count columns like the rows of survey_rows; neighbours in a column are pace apart. */
static void survey_columns(const double *restrict x, int64_t count, int64_t depth, int64_t pace,
                           double *restrict length, int64_t *restrict least) {
    for (int64_t i = 0; i < count; i++) length[i] = 0, least[i] = MAGNITUDE;
    for (int64_t k = 0; k < depth; k++, x += pace)
        for (int64_t i = 0; i < count; i++) look(x[i], length + i, least + i);
    for (int64_t i = 0; i < count; i++) length[i] = sqrt(length[i]);
}

/* Bounds of the sums of one row: see intervals. */
typedef struct {
    double more; /* factor above 1 that covers the errors of the lengths themselves */
    double part; /* bound of the sum's error, as a share of the product of lengths */
    int n, es, largest;
    grid g;
    single_grid s;
} bound;

/* Write the ends of intervals that hold the exact sums of one row. By Cauchy and Schwarz no partial sum
   exceeds the product of both lengths, and every term is a multiple of 2^unit. Below 2^(unit + 53) all
   partial sums are therefore exact, and the interval is a point. from has the start of each sum, if
   with_start. There are no branches, so that the loop takes vector instructions. */
static inline void intervals(const double *restrict sums, const double *restrict from,
                             const int with_start, double length, int64_t least,
                             const double *restrict lengths, const int64_t *restrict leasts,
                             int64_t count, const bound *b, double *restrict low,
                             double *restrict high) {
    for (int64_t j = 0; j < count; j++) {
        double size = length * lengths[j];
        int64_t unit = least + leasts[j]; /* -960 to 960 */
        if (with_start) {
            const int64_t pattern = bits_of(from[j]) & MAGNITUDE;
            const int64_t own = last_of(pattern ? pattern : MAGNITUDE, b->n, b->es, b->largest);
            size += fabs(from[j]);
            unit = own < unit ? own : unit;
        }
        size *= b->more;
        const double limit = real_of((unit + 1023 + 53) << FRACTION);
        const double slack = size < limit ? 0 : size * b->part;
        low[j] = sums[j] - slack, high[j] = sums[j] + slack;
    }
}

/* Round the low ends, to out or, if out is NULL, to wide. Mark in open the sums whose high end may round
   to another posit, and return whether there are any. */
static inline int settle_row(const double *restrict low, const double *restrict high,
                             double *restrict wide, single *restrict out, int64_t count,
                             const bound *b, int *restrict open) {
    int any = 0;
    if (out)
        for (int64_t j = 0; j < count; j++) {
            const single x = (single)low[j], y = (single)high[j];
            out[j] = single_rounded(x, b->s);
            open[j] = (x != y | single_splits(x, b->s)) & (x == x);
            any |= open[j];
        }
    else
        for (int64_t j = 0; j < count; j++) {
            wide[j] = rounded(low[j], b->g);
            open[j] = (wide[j] != rounded(high[j], b->g)) & (low[j] == low[j]);
            any |= open[j];
        }
    return any;
}

/* Round total (m, columns), which is start + a b summed in float64 in any order, as if the sums were
   exact. Write to out, or to total if out is NULL. out, of float, is only for formats whose posits and
   midpoints between posits are normal floats. Rows of b are pace apart; start is NULL for 0; length and
   least have m + columns elements. trainwright.posit.products derives the bound. */
static void decide(const double *a, const double *b, const double *start, double *total, single *out,
                   int64_t m, int64_t depth, int64_t columns, int64_t pace, double *length,
                   int64_t *least, int n, int es) {
    const int largest = (n - 2) << es;
    const bound limits = {1 + (double)(depth + 8) * 0x1p-50, (double)(depth + 8) * 0x1p-53,
                          n, es, largest, grid_of(n, es), single_grid_of(n, es)};
    double low[CHUNK], high[CHUNK];
    int open[CHUNK];
    survey_rows(a, m, depth, length, least);
    survey_columns(b, columns, depth, pace, length + m, least + m);
    for (int64_t i = 0; i < m + columns; i++) least[i] = last_of(least[i], n, es, largest);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < columns; j += CHUNK) {
            const int64_t count = columns - j < CHUNK ? columns - j : CHUNK, at = i * columns + j;
            const double *lengths = length + m + j;
            const int64_t *leasts = least + m + j;
            const double *from = start ? start + at : 0;
            if (start)
                intervals(total + at, from, 1, length[i], least[i], lengths, leasts, count, &limits,
                          low, high);
            else
                intervals(total + at, from, 0, length[i], least[i], lengths, leasts, count, &limits,
                          low, high);
            single *narrow = out ? out + at : 0;
            if (!settle_row(low, high, total + at, narrow, count, &limits, open)) continue;
            for (int64_t s = 0; s < count; s++) {
                if (!open[s]) continue;
                double sum = rounded(low[s], limits.g);
                if (sum != rounded(high[s], limits.g))
                    sum = exact(from ? from[s] : 0, a + i * depth, 1, b + j + s, pace, depth,
                                largest, limits.g);
                if (out) narrow[s] = (single)sum;
                else total[at + s] = sum;
            }
        }
}

/* Call decide for each product of a batch; a stride of 0 repeats an operand. */
void posit_decide(const double *a, int64_t step_a, const double *b, int64_t step_b,
                  const double *start, double *total, single *out, int64_t batch, int64_t m,
                  int64_t depth, int64_t columns, double *length, int64_t *least, int64_t n,
                  int64_t es) {
    for (int64_t i = 0; i < batch; i++) {
        const int64_t at = i * m * columns;
        decide(a + i * step_a, b + i * step_b, start ? start + at : 0, total + at, out ? out + at : 0,
               m, depth, columns, columns, length, least, (int)n, (int)es);
    }
}
