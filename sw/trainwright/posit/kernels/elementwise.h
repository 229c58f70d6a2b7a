/* Element-wise operations rounded once; a stride of 0 repeats an operand. */

void posit_round(const REAL *restrict x, REAL *restrict out, int64_t count, int64_t n, int64_t es) {
    const grid g = grid_of((int)n, (int)es);
    for (int64_t i = 0; i < count; i++) out[i] = rounded(x[i], g);
}

#define OPERATION(name, sign)                                                                     \
    void posit_##name(const REAL *restrict x, int64_t step_x, const REAL *restrict y,       \
                            int64_t step_y, REAL *restrict out, int64_t count, int64_t n, int64_t es) {   \
        const grid g = grid_of((int)n, (int)es);                                                \
        if (step_x && step_y)                                                                     \
            for (int64_t i = 0; i < count; i++) out[i] = rounded(x[i] sign y[i], g);        \
        else if (step_x)                                                                          \
            for (int64_t i = 0; i < count; i++) out[i] = rounded(x[i] sign *y, g);          \
        else                                                                                      \
            for (int64_t i = 0; i < count; i++) out[i] = rounded(*x sign y[i], g);          \
    }

OPERATION(add, +)
OPERATION(sub, -)
OPERATION(mul, *)
OPERATION(div, /)
#undef OPERATION
