/* Operations in double that are rounded to odd, and then to the format: a rounding to odd does not change
   the result of the second rounding. fma() is exact with or without an instruction for it. */

/* Round the exact value result + rest to odd: unless rest is 0 or NaN, the last bit becomes 1. An even
   pattern moves by 1 towards the exact value; + 1 is away from 0. */
static inline double to_odd(double result, double rest) {
    const int64_t bits = bits_of(result);
    const int64_t away = (rest > 0) == (result > 0) ? 1 : -1;
    const int64_t move = ((rest > 0) | (rest < 0)) & ((bits & 1) == 0);
    return real_of(bits + (move ? away : 0));
}

static inline double product_to_odd(double x, double y) {
    const double p = x * y;
    return to_odd(p, fma(x, y, -p));
}

static inline double quotient_to_odd(double x, double y) {
    const double q = x / y, rest = fma(-q, y, x); /* x / y = q + rest / y */
    return to_odd(q, y < 0 ? -rest : rest);
}

static inline double root_to_odd(double x) {
    const double q = sqrt(x);
    return to_odd(q, fma(-q, q, x));
}

static inline double two_sum(double x, double y, double *rest) {
    const double s = x + y, z = s - x;
    *rest = (x - (s - z)) + (y - z);
    return s;
}

/* See trainwright.posit.odd. */
static inline double fused_to_odd(double x, double y, double z) {
    double low, lost, rest;
    const double p = x * y, high = two_sum(z, fma(x, y, -p), &low);
    const double v = two_sum(p, high, &lost), s = two_sum(v, lost + low, &rest);
    return to_odd(s, rest);
}

#define OPERATION(name, result)                                                                   \
    void posit_odd_##name(const double *restrict x, int64_t step_x, const double *restrict y,     \
                          int64_t step_y, double *restrict out, int64_t count, int64_t n,         \
                          int64_t es) {                                                           \
        const grid g = grid_of((int)n, (int)es);                                                  \
        for (int64_t i = 0; i < count; i++)                                                       \
            out[i] = rounded(result(x[i * step_x], y[i * step_y]), g);                            \
    }

OPERATION(mul, product_to_odd)
OPERATION(div, quotient_to_odd)
#undef OPERATION

void posit_odd_sqrt(const double *restrict x, double *restrict out, int64_t count, int64_t n,
                    int64_t es) {
    const grid g = grid_of((int)n, (int)es);
    for (int64_t i = 0; i < count; i++) out[i] = rounded(root_to_odd(x[i]), g);
}

void posit_odd_fma(const double *restrict x, int64_t step_x, const double *restrict y,
                   int64_t step_y, const double *restrict z, int64_t step_z, double *restrict out,
                   int64_t count, int64_t n, int64_t es) {
    const grid g = grid_of((int)n, (int)es);
    for (int64_t i = 0; i < count; i++)
        out[i] = rounded(fused_to_odd(x[i * step_x], y[i * step_y], z[i * step_z]), g);
}
