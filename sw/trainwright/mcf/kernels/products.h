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

/* LANES sums side by side, of which halves are added until one is left, in vectors of WIDTH. Products
   through doubles wait for conversions, of which a Zen 4 does four from memory in 0.49 cycles and eight
   in 1.32; sums with their errors wait for additions, and eight at a time take 0.48 ns for 0.54. */
#define LANES 16
#if defined(__AVX512VL__) && NC == 3 && !defined(DOUBLE)
#define WIDTH 8
#else
#define WIDTH 4
#endif
#define VECTORS (LANES / WIDTH)

typedef double DOUBLES __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));

#if NC == 3 && !defined(DOUBLE) || NC == 2 && defined(DOUBLE)

typedef REAL REALS __attribute__((vector_size(sizeof(REAL) * WIDTH), aligned(4), may_alias));

IN DOUBLES widened(const REAL *x) {
    const REALS r = *(const REALS *)x;
    return __builtin_convertvector(r, DOUBLES);
}

/* Add the product of WIDTH numbers to `total`, and what its rounding lost, with the products of lower
   components, to `lower`. Products of floats are exact. */
IN void add_product(const DOUBLES *x, int nx, const DOUBLES *y, int ny, DOUBLES unit,
                    DOUBLES *total, DOUBLES *lower) {
#if defined(__clang__) && !defined(DOUBLE)
#pragma STDC FP_CONTRACT ON  // the products are exact: rounded once or twice, the sums are the same
#endif
    const DOUBLES p = x[0] * y[0], sum = *total;
#if defined(__clang__) && !defined(DOUBLE)
    /* Two-Sum, with every other addition in a unit for products: conversions keep those for sums busy.
       unit is 1, which the compiler must not know. */
    const DOUBLES s = sum * unit + p, c = s - sum;
    const DOUBLES rest = sum - (s * unit - c);
    DOUBLES small = rest * unit + (p - c);
#else
    DOUBLES s, small;
    TWO_SUM(sum, p, s, small);
#endif
    *total = s;
#ifdef DOUBLE
    DOUBLES lost;
    ALL (int l = 0; l < WIDTH; l++) lost[l] = fma(x[0][l], y[0][l], -p[l]);
    small = small + lost;
#else
    ALL (int i = 0; i < NC; i++)
        if (i < nx && 2 - i < ny) small = small + x[i] * y[2 - i];
#endif
    ALL (int i = 0; i < 2; i++)
        if (i < nx && 1 - i < ny) small = small + x[i] * y[1 - i];
    *lower = *lower + small;
}

/* The expansion of LANES totals and their lower parts. */
IN void store_total(const DOUBLES *totals, const DOUBLES *lowers, REAL *out, int64_t plane) {
    double total[LANES], lower[LANES];
    ALL (int i = 0; i < LANES; i++) total[i] = totals[i / WIDTH][i % WIDTH];
    ALL (int i = 0; i < LANES; i++) lower[i] = lowers[i / WIDTH][i % WIDTH];
    ALL (int half = LANES / 2; half > 0; half /= 2)
        ALL (int i = 0; i < half; i++) {
            const double a = total[i], b = total[i + half];
            double lost;
            TWO_SUM(a, b, total[i], lost);
            lower[i] = (lower[i] + lower[i + half]) + lost;
        }
    REAL terms[NC] = {0}, z[NC];
    if (isfinite(total[0])) {
        double high, low;
        TWO_SUM(total[0], lower[0], high, low);
#ifdef DOUBLE
        terms[0] = high, terms[1] = low;
#else
        part_pair(high, low, terms);
#endif
    } else
        terms[0] = (REAL)total[0];
    finish(terms, terms[0], z);
    store(out, plane, 0, z);
}

/* Products of LANES columns, at x[c * apart + l] and v[c * filled + l]. */
IN void add_columns(const REAL *x, int64_t apart, int nx, const double *v, int64_t filled, int ny,
                    DOUBLES unit, DOUBLES *total, DOUBLES *lower) {
    ALL (int i = 0; i < VECTORS; i++) {
        DOUBLES a[NC], b[NC];
        ALL (int c = 0; c < nx; c++) a[c] = widened(x + c * apart + i * WIDTH);
        ALL (int c = 0; c < ny; c++) b[c] = *(const DOUBLES *)(v + c * filled + i * WIDTH);
        add_product(a, nx, b, ny, unit, total + i, lower + i);
    }
}

/* out (rows) = x (rows, columns) v, v (components, columns) filled up to whole LANES with zeros. */
IN void vector_product(const REAL *x, int64_t plane, int nx, const double *v, int64_t filled, int ny,
                       REAL *out, int64_t rows, int64_t columns) {
    volatile const double known = 1;
    const double one = known;
    DOUBLES unit;
    ALL (int l = 0; l < WIDTH; l++) unit[l] = one;
    for (int64_t row = 0; row < rows; row++, x += columns) {
        DOUBLES total[VECTORS] = {0}, lower[VECTORS] = {0};
        int64_t k = 0;
        for (; k + LANES <= columns; k += LANES) {
            /* Planes are more streams than the processor fetches by itself: 0.63 for 0.95 ms at
               1,024 x 1,024 on a Zen 4; from 16 KiB before, as in mv below, was no faster. */
            ALL (int c = 0; c < nx; c++)
                __builtin_prefetch((const void *)((uintptr_t)(x + c * plane + k) + (4 << 10)), 0, 2);
            add_columns(x + k, plane, nx, v + k, filled, ny, unit, total, lower);
        }
        if (k < columns) {
            REAL ends[NC * LANES] = {0};
            for (int c = 0; c < nx; c++)
                for (int64_t l = k; l < columns; l++) ends[c * LANES + l - k] = x[c * plane + l];
            add_columns(ends, LANES, nx, v + k, filled, ny, unit, total, lower);
        }
        store_total(total, lower, out + row, rows);
    }
}

#define VECTOR_PRODUCT(name, nx, ny)                                                               \
    void mcf_vector_##name(const REAL *restrict x, int64_t plane, const double *restrict v,        \
                           int64_t filled, REAL *restrict out, int64_t rows, int64_t columns) {    \
        vector_product(x, plane, nx, v, filled, ny, out, rows, columns);                           \
    }

VECTOR_PRODUCT(both, NC, NC)
VECTOR_PRODUCT(first, NC, 1)
VECTOR_PRODUCT(second, 1, NC)

#endif

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

/* Products with a vector through doubles. A row's last columns, fewer than LANES, belong to the last
   sums. As many rows at a time as have their sums in registers are fetched into the second cache from
   AHEAD bytes before. */
#ifdef __AVX512VL__
#define ROWS 2
#else
#define ROWS 1
#endif
#define AHEAD (16 << 10)

typedef float FLOATS __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t BITS __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

/* Factors of the last columns, and their bits among a row's last LANES. */
typedef struct {
    double factors[LANES];
    int32_t mask[LANES];
} LAST;

IN LAST last_columns(const double *v, int64_t columns) {
    LAST last = {{0}, {0}};
    for (int64_t l = LANES - columns % LANES; l < LANES; l++) {
        last.factors[l] = v[columns - LANES + l];
        last.mask[l] = -1;
    }
    return last;
}

/* The last columns of a row behind zeros, whose products leave a sum as it is: none is -0. */
IN void copy_last(const float *row, int64_t columns, const LAST *last, float *into) {
    ALL (int l = 0; l < LANES; l += WIDTH)
        if (columns >= LANES)
            *(BITS *)(into + l) =
                *(const BITS *)(row + columns - LANES + l) & *(const BITS *)(last->mask + l);
        else
            for (int i = l; i < l + WIDTH; i++)
                into[i] = i < LANES - columns ? 0 : row[columns - LANES + i];
}

IN void fetch(const float *x) { __builtin_prefetch((const void *)((uintptr_t)x + AHEAD), 0, 1); }

IN DOUBLES widen(const float *x) {
    const FLOATS f = *(const FLOATS *)x;
    return __builtin_convertvector(f, DOUBLES);
}

IN double sum_lanes(DOUBLES *x) {
    ALL (int half = VECTORS / 2; half > 0; half /= 2)
        ALL (int i = 0; i < half; i++) x[i] = x[i] + x[i + half];
    DOUBLES one = x[0];
    ALL (int half = WIDTH / 2; half > 0; half /= 2)
        ALL (int l = 0; l < half; l++) one[l] = one[l] + one[l + half];
    return one[0];
}

IN void add_joined(const DOUBLES *terms, DOUBLES factor, DOUBLES *total) {
    DOUBLES joined = terms[NC - 1];
    ALL (int c = NC - 2; c >= 0; c--) joined = terms[c] + joined;
    total[0] = total[0] + joined * factor;
}

IN void add_components(const DOUBLES *terms, DOUBLES factor, DOUBLES *total) {
#ifdef __clang__
#pragma STDC FP_CONTRACT ON  // the products are exact: rounded once or twice, the sums are the same
#endif
    ALL (int c = 0; c < NC; c++) total[c] = terms[c] * factor + total[c];
}

/* LANES columns of a row. */
IN void add_lanes(const float *x, int64_t plane, const double *v, int joined, DOUBLES (*total)[NC]) {
    ALL (int i = 0; i < VECTORS; i++) {
        DOUBLES terms[NC];
        ALL (int c = 0; c < NC; c++) terms[c] = widen(x + c * plane + i * WIDTH);
        const DOUBLES factor = *(const DOUBLES *)(v + i * WIDTH);
        (joined ? add_joined : add_components)(terms, factor, total[i]);
    }
}

IN void sum_rows(const float *restrict x, int64_t plane, const double *restrict v, const LAST *last,
                 int64_t columns, int rows, int joined, double (*sums)[NC]) {
    const int parts = joined ? 1 : NC;
    DOUBLES total[ROWS][VECTORS][NC] = {0};
    int64_t k = 0;
    for (; k + LANES <= columns; k += LANES) {
        ALL (int r = 0; r < rows; r++)
            ALL (int c = 0; c < NC; c++) fetch(x + c * plane + r * columns + k);
        ALL (int r = 0; r < rows; r++) add_lanes(x + r * columns + k, plane, v + k, joined, total[r]);
    }
    ALL (int r = 0; r < rows; r++) {
        if (k < columns) {
            float ends[NC][LANES];
            ALL (int c = 0; c < NC; c++)
                copy_last(x + c * plane + r * columns, columns, last, ends[c]);
            add_lanes(ends[0], LANES, last->factors, joined, total[r]);
        }
        ALL (int c = 0; c < parts; c++) {
            DOUBLES lanes[VECTORS];
            ALL (int i = 0; i < VECTORS; i++) lanes[i] = total[r][i][c];
            sums[r][c] = sum_lanes(lanes);
        }
    }
}

IN void store_sums(const double *sums, int parts, float *out, int64_t plane, int64_t at) {
    double lower = 0;
    for (int c = parts - 1; c > 0; c--) lower = lower + sums[c];
    store_parts(isfinite(sums[0]) ? sums[0] + lower : sums[0], out, plane, at);
}

/* out (rows) = x (rows, columns) v: each term x joined in a double, or, where v is of floats so that
   products are exact, a sum of each component's. */
IN void mv(const float *restrict x, int64_t plane, const double *restrict v, float *restrict out,
           int64_t rows, int64_t columns, int joined) {
    const LAST last = last_columns(v, columns);
    const int parts = joined ? 1 : NC;
    double sums[ROWS][NC];
    int64_t row = 0;
    for (; row + ROWS <= rows; row += ROWS, x += ROWS * columns) {
        sum_rows(x, plane, v, &last, columns, ROWS, joined, sums);
        ALL (int r = 0; r < ROWS; r++) store_sums(sums[r], parts, out, rows, row + r);
    }
    for (; row < rows; row++, x += columns) {
        sum_rows(x, plane, v, &last, columns, 1, joined, sums);
        store_sums(sums[0], parts, out, rows, row);
    }
}

void mcf_mv_joined(const float *x, int64_t plane, const double *v, float *out, int64_t rows,
                   int64_t columns) {
    mv(x, plane, v, out, rows, columns, 1);
}

void mcf_mv_components(const float *x, int64_t plane, const double *v, float *out, int64_t rows,
                       int64_t columns) {
    mv(x, plane, v, out, rows, columns, 0);
}

#endif
