/* Exact sums of products, rounded once: what a float64 sum cannot decide. See trainwright.posit.exact. */

enum {
    LIMBS = 66,       /* of 32 bits: 4 S + 32 + 60 + 32 bits for S = 480 */
    SIGNIFICAND = 31, /* bits kept of a significand: posits have at most 30 */
    UNIT = 2 * (SIGNIFICAND - 1) /* a product's last bit is this far below its scale */
};
#define LOW 0xFFFFFFFFll

/* Signed significand of 31 bits and scale; 0 and 0 for 0. */
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

/* Add term 2^place, |term| below 2^62. */
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

/* The sum times 2^-unit, rounded to odd at 33 digits or more. */
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
    const int few = limbs[top] < 1 << 20, kept = few ? 32 : 20;
    const int64_t window = limbs[top] << kept | limbs[top - 1] >> (32 - kept);
    rest |= limbs[top - 1] & ((1ll << (32 - kept)) - 1);
    const double value = ldexp((double)(window | (rest != 0)), 32 * top - kept - unit);
    return negative ? -value : value;
}

/* start + sum of x y, values of the format and no NaN, rounded to it; S is its largest scale. */
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

/* The exponent of a power of two of which all values from |x| on are multiples: the last digit's
   weight there. size is |x|'s pattern; MAGNITUDE, for no value, is taken as maxpos. */
static int64_t last_of(int64_t size, int n, int es, int largest) {
    const int scale = size == MAGNITUDE ? largest : (int)(size >> FRACTION) - 1023;
    const int k = scale >> es, digits = n - 1 - (k < 0 ? -k : k + 1) - es;
    const int last = digits > 1 ? scale - digits + 1 : scale;
    return last < -largest ? -largest : last;
}

/* Of count vectors, whose element k is x[i step + k pace]: the Euclidean length, and the pattern of
   the smallest magnitude but 0 (MAGNITUDE if there is none). */
static void survey(const double *restrict x, int64_t count, int64_t step, int64_t depth,
                   int64_t pace, double *restrict length, int64_t *restrict least) {
    for (int64_t i = 0; i < count; i++) length[i] = 0, least[i] = MAGNITUDE;
    const int64_t outer = pace == 1 ? count : depth, inner = pace == 1 ? depth : count;
    for (int64_t p = 0; p < outer; p++)
        for (int64_t q = 0; q < inner; q++) {
            const int64_t i = pace == 1 ? p : q;
            const double v = x[pace == 1 ? p * step + q : p * pace + q * step];
            const int64_t size = bits_of(v) & MAGNITUDE, other = size == 0 ? MAGNITUDE : size;
            length[i] += v * v;
            least[i] = other < least[i] ? other : least[i];
        }
    for (int64_t i = 0; i < count; i++) length[i] = sqrt(length[i]);
}

/* Round total (m, columns), a float64 start + a b in whatever order, as the exact one. Rows of b are
   pace apart; start is NULL for 0; length and least have m + columns elements. The bound is that of
   trainwright.posit.products. */
static void decide(const double *a, const double *b, const double *start, double *total, int64_t m,
                   int64_t depth, int64_t columns, int64_t pace, double *length, int64_t *least,
                   int n, int es) {
    const grid g = grid_of(n, es);
    const int largest = (n - 2) << es;
    const double more = 1 + (double)(depth + 8) * 0x1p-50, part = (double)(depth + 8) * 0x1p-53;
    survey(a, m, depth, depth, 1, length, least);
    survey(b, columns, 1, depth, pace, length + m, least + m);
    for (int64_t i = 0; i < m + columns; i++) least[i] = last_of(least[i], n, es, largest);
    for (int64_t i = 0; i < m; i++) {
        double *restrict row = total + i * columns;
        for (int64_t j = 0; j < columns; j++) {
            const double from = start ? start[i * columns + j] : 0;
            double size = length[i] * length[m + j];
            int64_t unit = least[i] + least[m + j]; /* -960 to 960 */
            if (from != 0) {
                const int64_t own = last_of(bits_of(from) & MAGNITUDE, n, es, largest);
                size += fabs(from);
                unit = own < unit ? own : unit;
            }
            size *= more;
            const double limit = real_of((unit + 1023 + 53) << FRACTION);
            const double slack = size < limit ? 0 : size * part;
            const double low = rounded(row[j] - slack, g), high = rounded(row[j] + slack, g);
            row[j] = low == high || row[j] != row[j]
                         ? low
                         : exact(from, a + i * depth, 1, b + j, pace, depth, largest, g);
        }
    }
}

/* A batch of them; a stride of 0 repeats an operand. */
void posit_decide(const double *a, int64_t step_a, const double *b, int64_t step_b,
                  const double *start, double *total, int64_t batch, int64_t m, int64_t depth,
                  int64_t columns, double *length, int64_t *least, int64_t n, int64_t es) {
    for (int64_t i = 0; i < batch; i++)
        decide(a + i * step_a, b + i * step_b, start ? start + i * m * columns : 0,
               total + i * m * columns, m, depth, columns, columns, length, least, (int)n, (int)es);
}
