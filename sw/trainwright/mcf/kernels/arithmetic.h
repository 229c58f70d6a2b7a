/* Sums, products and quotients of NC components by NC or by one: trainwright.mcf.reference in C.
   NX and NY are the components of the operands; at least one of them is NC. */

#if !defined(DOUBLE) && NC <= 3
#define CARRIED
#endif

/* Up to three floats are carried in a double, or in a pair of doubles. */
#ifdef CARRIED

/* Add n components in double, the smallest first. */
IN double join(const float *x, int n) {
    if (n == 1) return x[0];
    double tail = x[n - 1];
    ALL (int k = n - 2; k > 0; k--) tail = x[k] + tail;
    return x[0] + tail;
}

/* Split a double into NC floats, each the rounding of the rest. */
IN void part(double high, float *terms) {
    ALL (int k = 0; k < NC; k++) {
        terms[k] = (float)high;
        high = high - terms[k];
    }
}

/* Add n components to a pair of doubles. */
IN void join_pair(const float *x, int n, double *high, double *low) {
    double lead = x[0], rest = 0;
    ALL (int k = 1; k < n; k++) {
        const double a = lead, b = x[k];
        double lost;
        TWO_SUM(a, b, lead, lost);
        rest = rest + lost;
    }
    FAST_TWO_SUM(lead, rest, *high, *low);
}

/* Split a pair of doubles into NC floats, each the rounding of the rest. */
IN void part_pair(double high, double low, float *terms) {
    ALL (int k = 0; k < NC; k++) {
        terms[k] = (float)high;
        const double a = high - terms[k], b = low;
        TWO_SUM(a, b, high, low);
    }
}

#endif

#if NC == 2 && !defined(DOUBLE)

IN void add(const float *x, int nx, const float *y, int ny, float *z) {
    const double low = nx == 1 ? y[1] : ny == 1 ? x[1] : (double)x[1] + y[1];
    float terms[2];
    part(((double)x[0] + y[0]) + low, terms);
    finish(terms, x[0] + y[0], z);
}

#else

IN void add(const REAL *x, int nx, const REAL *y, int ny, REAL *z) {
    const REAL plain = x[0] + y[0];
    if (nx == 1 || ny == 1) {
        const REAL *many = nx == 1 ? y : x, one = nx == 1 ? x[0] : y[0];
        REAL terms[NC + 1];
        ALL (int k = 0; k < NC; k++) terms[k] = many[k];
        terms[NC] = one;
        vec_sum(terms, NC + 1);
        distil(terms, NC + 1, NC - 1);
        finish(terms, plain, z);
        return;
    }
    REAL terms[2 * NC];
    ALL (int k = 0; k < NC; k++) {
        REAL s, e;
        const REAL a = x[k], b = y[k];
        TWO_SUM(a, b, s, e);
        terms[2 * k] = s;
        terms[2 * k + 1] = e;
    }
    distil(terms, 2 * NC, NC);
    finish(terms, plain, z);
}

#endif

#if NC == 2 && !defined(DOUBLE)

/* Multiply by a float, in float: conversions to double and back would take longer than all of this. */
IN void scale(const float *x, float v, float *z) {
    const float p = x[0] * v, q = x[1] * v;
    const float lost_p = fmaf(x[0], v, -p), lost_q = fmaf(x[1], v, -q);
    float middle, rest, high, low, terms[2];
    TWO_SUM(lost_p, q, middle, rest);
    FAST_TWO_SUM(p, middle, high, low);
    low = low + (rest + lost_q);
    FAST_TWO_SUM(high, low, terms[0], terms[1]);
    finish(terms, p, z);
}

IN void mul(const float *x, int nx, const float *y, int ny, float *z) {
    float terms[2];
    if (nx == 1 || ny == 1) {
        scale(nx == 1 ? y : x, nx == 1 ? x[0] : y[0], z);
        return;
    }
    part(join(x, nx) * join(y, ny), terms);
    finish(terms, x[0] * y[0], z);
}

IN void divide(const float *x, int nx, const float *y, int ny, float *z) {
    float terms[2];
    part(join(x, nx) / join(y, ny), terms);
    finish(terms, x[0] / y[0], z);
}

#elif defined(CARRIED)

IN void mul(const float *x, int nx, const float *y, int ny, float *z) {
    double h, l, c, d;
    float terms[3];
    /* the operand of more components comes first, as in the reference */
    join_pair(nx < ny ? y : x, nx < ny ? ny : nx, &h, &l);
    join_pair(nx < ny ? x : y, nx < ny ? nx : ny, &c, &d);
    const double p = h * c;
    part_pair(p, fma(h, c, -p) + (h * d + l * c), terms);
    finish(terms, x[0] * y[0], z);
}

IN void divide(const float *x, int nx, const float *y, int ny, float *z) {
    double h, l, c, d, high, low;
    float terms[3];
    join_pair(x, nx, &h, &l);
    join_pair(y, ny, &c, &d);
    const double q = h / c, p = q * c;
    const double rest = (((h - p) - fma(q, c, -p)) + l) - q * d;
    const double more = rest / c;
    FAST_TWO_SUM(q, more, high, low);
    part_pair(high, low, terms);
    finish(terms, x[0] / y[0], z);
}

#else

/* Multiply: list exact partial products by rank, down to the last rank, and add up those of the last. */
IN void mul(const REAL *x, int nx, const REAL *y, int ny, REAL *z) {
    const REAL *a = nx < ny ? y : x, *b = nx < ny ? x : y;
    const int few = nx < ny ? nx : ny;
    REAL terms[NC * NC + 1], lost[NC], last = 0;
    ALL (int i = 0; i < NC; i++)
        ALL (int j = 0; j < NC; j++)
            if (j < few && i + j < NC) {
                const int r = i + j; /* the rank; there are r^2 terms of lower ones */
                REAL e;
                terms[few == 1 ? 2 * i : r * r + (j ? 2 * i + 1 : 2 * i)] = product(a[i], b[j], &e);
                if (r + 1 < NC) terms[few == 1 ? 2 * i + 1 : (r + 1) * (r + 1) + 2 * i] = e;
                else lost[i] = e;
            }
    const int first = few == 1 ? NC - 1 : 0;
    last = lost[first];
    ALL (int i = 0; i < NC; i++) {
        if (i > first) last = last + lost[i];
        if (i && NC - i < few) last = last + a[i] * b[NC - i];
    }
    terms[few == 1 ? 2 * NC - 1 : NC * NC] = last;
    distil(terms, few == 1 ? 2 * NC : NC * NC + 1, NC);
    finish(terms, x[0] * y[0], z);
}

/* Multiply NC terms in order by 2^up. A component that becomes subnormal is rounded; its error is added to
   the next component, so that the leading component is the rounding of the whole. */
IN void scale(REAL *terms, int up) {
    /* In two steps, either of which is a normal power. */
    const int first = up > BIAS ? BIAS : up < 1 - BIAS ? 1 - BIAS : up;
    const REAL p = power_of_two(first), q = power_of_two(up - first);
    const REAL p_back = power_of_two(first > BIAS - 1 ? 1 - BIAS : -first);
    const REAL p_more = first > BIAS - 1 ? (REAL)0.5 : 1, q_back = power_of_two(first - up);
    REAL term = terms[0];
    ALL (int k = 0; k < NC; k++) {
        const REAL scaled = term * p * q;
        const REAL lost = term - scaled * q_back * p_back * p_more;
        terms[k] = scaled;
        if (k + 1 < NC) {
            REAL error;
            const REAL next = terms[k + 1];
            TWO_SUM(lost, next, term, error);
            if (k + 2 < NC) terms[k + 2] = terms[k + 2] + error;
        }
    }
    distil(terms, NC, 1);
}

/* Write NC + 1 quotients of leading components; normalise the remainder after each. */
IN void long_division(const REAL *x, int nx, const REAL *y, int ny, REAL *quotients) {
    REAL rest[NC];
    ALL (int k = 0; k < NC; k++) rest[k] = k < nx ? x[k] + 0 : 0;
    ALL (int step = 0; step <= NC; step++) {
        const REAL q = rest[0] / y[0];
        quotients[step] = q;
        if (step == NC) break;
        REAL p[NC], e[NC], terms[3 * NC];
        ALL (int j = 0; j < NC; j++)
            if (j < ny) p[j] = product(-q, y[j], &e[j]);
        ALL (int k = 0; k < NC; k++) {
            /* by rank: the remainder's component, the error from the rank before, the product */
            terms[k == 0 ? 0 : ny == 1 ? k + 1 + (k > 1) : 3 * k - 1] = rest[k];
            if (k < ny) terms[3 * k + 1] = p[k];
            if (k < ny) terms[k + 1 < NC ? 3 * k + 3 : 3 * k + 2] = e[k];
        }
        distil(terms, ny == NC ? 3 * NC : NC + 2, NC + 1);
        ALL (int k = 0; k < NC; k++) rest[k] = terms[k];
    }
    distil(quotients, NC + 1, 2);
}

IN void divide(const REAL *x, int nx, const REAL *y, int ny, REAL *z) {
    REAL quotients[NC + 1];
    long_division(x, nx, y, ny, quotients);
    finish(quotients, x[0] / y[0], z);
}

/* Return whether remainders of x over- or underflow: below, their errors are 2^10 times too large for NC
   components. */
IN int near_end(REAL x) {
    const REAL size = REAL_ABS(x);
    return ((size > 0) & (size < power_of_two(1 - BIAS + (DIGITS + 1) * (NC - 1) + 10))) |
           ((size > REAL_MAX / 2) & (size <= REAL_MAX));
}

/* Compute the same after dividing the operands by powers of two. */
IN void divide_scaled(const REAL *x, int nx, const REAL *y, int ny, REAL *z) {
    REAL a[NC], b[NC], quotients[NC + 1];
    const int above = exponent_of(x[0]), below = exponent_of(y[0]);
    /* The reciprocal of the greatest power is subnormal: that of its half will do. */
    const int down_a = above > BIAS - 1 ? BIAS - 1 : above;
    const int down_b = below > BIAS - 1 ? BIAS - 1 : below;
    ALL (int k = 0; k < nx; k++) a[k] = x[k] * power_of_two(-down_a);
    ALL (int k = 0; k < ny; k++) b[k] = y[k] * power_of_two(-down_b);
    long_division(a, nx, b, ny, quotients);
    scale(quotients, down_a - down_b);
    finish(quotients, x[0] / y[0], z);
}

#endif
