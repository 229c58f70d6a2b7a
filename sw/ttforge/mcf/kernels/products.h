/* Matrix products: one multiplication and one sum of expansions a term, in the order of k. */

#define PRODUCTS(name, nx, ny)                                                                      \
    IN void row_##name(const REAL *restrict x, int64_t plane_x, int64_t step_x,                     \
                       const REAL *restrict y, int64_t plane_y, int64_t step_y,                     \
                       REAL *restrict out, int64_t plane, int64_t count) {                          \
        for (int64_t i = 0; i < count; i++) {                                                       \
            REAL a[NC], b[NC], c[NC], p[NC], z[NC];                                                 \
            load(x, plane_x, i * step_x, nx, a);                                                    \
            load(y, plane_y, i * step_y, ny, b);                                                    \
            load(out, plane, i, NC, c);                                                             \
            mul(a, nx, b, ny, p);                                                                   \
            add(c, NC, p, NC, z);                                                                   \
            store(out, plane, i, z);                                                                \
        }                                                                                           \
    }                                                                                               \
    /* out (m, n) += x (m, k) y (k, n); across: x lies as (k, m) and out as (n, m) */               \
    void mcf_product_##name(const REAL *x, int64_t plane_x, const REAL *y, int64_t plane_y,         \
                            REAL *out, int64_t plane, int64_t m, int64_t k, int64_t n,              \
                            int64_t across) {                                                       \
        for (int64_t i = 0; i < (across ? n : m); i++)                                              \
            for (int64_t l = 0; l < k; l++)                                                         \
                if (across)                                                                         \
                    row_##name(x + l * m, plane_x, 1, y + l * n + i, plane_y, 0, out + i * m,       \
                               plane, m);                                                           \
                else                                                                                \
                    row_##name(x + i * k + l, plane_x, 0, y + l * n, plane_y, 1, out + i * n,       \
                               plane, n);                                                           \
    }

PRODUCTS(both, NC, NC)
PRODUCTS(first, NC, 1)
PRODUCTS(second, 1, NC)

#ifdef CARRIED

void mcf_join(const float *restrict x, int64_t plane, double *restrict out, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float a[NC];
        load(x, plane, i, NC, a);
        out[i] = join(a, NC);
    }
}

IN void store_parts(double z, float *out, int64_t plane, int64_t at) {
    float terms[NC], a[NC];
    part(z, terms);
    finish(terms, terms[0], a);
    store(out, plane, at, a);
}

void mcf_part(const double *restrict z, float *restrict out, int64_t count) {
    for (int64_t i = 0; i < count; i++) store_parts(z[i], out, count, i);
}

/* Products with a vector through doubles: LANES sums side by side, then one after another, those of
   BLOCK rows at a time. Rows are read one by one: memory is faster in a single stream. */
#define LANES 16
#define BLOCK 8

typedef float LANES_FLOAT __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double LANES_DOUBLE __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

IN LANES_DOUBLE widen_lanes(const float *x) {
    return __builtin_convertvector(*(const LANES_FLOAT *)x, LANES_DOUBLE);
}

IN LANES_DOUBLE join_lanes(const float *x, int64_t plane) {
    LANES_DOUBLE joined = widen_lanes(x + (NC - 1) * plane);
    ALL (int k = NC - 2; k >= 0; k--) joined = widen_lanes(x + k * plane) + joined;
    return joined;
}

IN void sum_joined(const float *x, int64_t plane, const double *v, int64_t columns,
                   double (*sums)[LANES]) {
    LANES_DOUBLE total = {0};
    int64_t k = 0;
    for (; k + LANES <= columns; k += LANES)
        total = total + join_lanes(x + k, plane) * *(const LANES_DOUBLE *)(v + k);
    *(LANES_DOUBLE *)sums[0] = total;
    for (int l = 0; k + l < columns; l++) {
        float a[NC];
        load(x, plane, k + l, NC, a);
        sums[0][l] = sums[0][l] + join(a, NC) * v[k + l];
    }
}

IN void sum_components(const float *x, int64_t plane, const double *v, int64_t columns,
                       double (*sums)[LANES]) {
#ifdef __clang__
#pragma STDC FP_CONTRACT ON  // the products are exact: rounded once or twice, the sums are the same
#endif
    LANES_DOUBLE total[NC] = {0};
    int64_t k = 0;
    for (; k + LANES <= columns; k += LANES)
        ALL (int c = 0; c < NC; c++)
            total[c] = widen_lanes(x + c * plane + k) * *(const LANES_DOUBLE *)(v + k) + total[c];
    ALL (int c = 0; c < NC; c++) {
        *(LANES_DOUBLE *)sums[c] = total[c];
        for (int l = 0; k + l < columns; l++) sums[c][l] += x[c * plane + k + l] * v[k + l];
    }
}

#define MV(name, parts, sum)                                                                        \
    void mcf_mv_##name(const float *restrict x, int64_t plane, const double *restrict v,            \
                       float *restrict out, int64_t rows, int64_t columns) {                        \
        double sums[BLOCK][parts][LANES] = {0};                                                     \
        for (int64_t row = 0; row < rows; row += BLOCK) {                                           \
            const int some = rows - row < BLOCK ? (int)(rows - row) : BLOCK;                        \
            double totals[parts][BLOCK];                                                            \
            for (int r = 0; r < some; r++, x += columns) sum(x, plane, v, columns, sums[r]);        \
            for (int c = 0; c < parts; c++)                                                         \
                for (int r = 0; r < BLOCK; r++) totals[c][r] = sums[r][c][0];                       \
            for (int l = 1; l < LANES; l++)                                                         \
                for (int c = 0; c < parts; c++)                                                     \
                    for (int r = 0; r < BLOCK; r++) totals[c][r] = totals[c][r] + sums[r][c][l];    \
            for (int r = 0; r < some; r++) {                                                        \
                double lower = 0, high = totals[0][r];                                              \
                for (int c = parts - 1; c > 0; c--) lower = lower + totals[c][r];                   \
                store_parts(isfinite(high) ? high + lower : high, out, rows, row + r);              \
            }                                                                                       \
        }                                                                                           \
    }

/* out (rows) = x (rows, columns) v: each term x joined in a double, or, where v is of floats so that
   products are exact, a sum of each component's. */
MV(joined, 1, sum_joined)
MV(components, NC, sum_components)

#endif
