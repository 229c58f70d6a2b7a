/* Element-wise loops over planes: component k of element i lies at x[k * plane + i * step], the
   step being 0 where one element stands for all. */

IN void load(const REAL *x, int64_t plane, int64_t at, int n, REAL *into) {
    ALL (int k = 0; k < n; k++) into[k] = x[k * plane + at];
}

IN void store(REAL *out, int64_t plane, int64_t at, const REAL *from) {
    ALL (int k = 0; k < NC; k++) out[k * plane + at] = from[k];
}

#define ELEMENT(operation, nx, ny, at_x, at_y) \
    do {                                       \
        REAL a[NC], b[NC], z[NC];              \
        load(x, plane_x, at_x, nx, a);         \
        load(y, plane_y, at_y, ny, b);         \
        operation(a, nx, b, ny, z);            \
        store(out, plane, i, z);               \
    } while (0)

#define BINARY(name, operation, nx, ny)                                                          \
    void mcf_##name(const REAL *restrict x, int64_t plane_x, int64_t step_x,                     \
                    const REAL *restrict y, int64_t plane_y, int64_t step_y, REAL *restrict out, \
                    int64_t plane, int64_t count) {                                              \
        if (step_x && step_y)                                                                    \
            for (int64_t i = 0; i < count; i++) ELEMENT(operation, nx, ny, i, i);                \
        else if (step_x)                                                                         \
            for (int64_t i = 0; i < count; i++) ELEMENT(operation, nx, ny, i, 0);                \
        else                                                                                     \
            for (int64_t i = 0; i < count; i++) ELEMENT(operation, nx, ny, 0, i);                \
    }

BINARY(add, add, NC, NC)
BINARY(mul, mul, NC, NC)
BINARY(add_plain, add, NC, 1)
BINARY(mul_plain, mul, NC, 1)

#ifdef CARRIED

BINARY(div, divide, NC, NC)
BINARY(div_plain, divide, NC, 1)
BINARY(plain_div, divide, 1, NC)

#else

/* Few dividends are near an end of the range, so that the loop over all can do without scaling. */
#define DIVISION(name, nx, ny)                                                                    \
    BINARY(unscaled_##name, divide, nx, ny)                                                       \
    void mcf_##name(const REAL *restrict x, int64_t plane_x, int64_t step_x,                      \
                    const REAL *restrict y, int64_t plane_y, int64_t step_y, REAL *restrict out,  \
                    int64_t plane, int64_t count) {                                               \
        mcf_unscaled_##name(x, plane_x, step_x, y, plane_y, step_y, out, plane, count);           \
        int any = 0;                                                                              \
        for (int64_t i = 0; i < (step_x ? count : 1); i++) any |= near_end(x[i]);                 \
        if (any)                                                                                  \
            for (int64_t i = 0; i < count; i++)                                                   \
                if (near_end(x[i * step_x])) ELEMENT(divide_scaled, nx, ny, i * step_x, i * step_y); \
    }

DIVISION(div, NC, NC)
DIVISION(div_plain, NC, 1)
DIVISION(plain_div, 1, NC)

#endif
