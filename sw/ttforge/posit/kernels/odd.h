/* Products rounded to odd, where one more rounding must not be one too many. */

/* result, beside the exact result + rest, with its last bit odd unless rest is 0 or NaN */
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
