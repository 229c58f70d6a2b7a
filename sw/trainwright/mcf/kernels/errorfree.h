/* Error-free transformations of REAL, and of double for the carriers. */

#define IN static inline __attribute__((always_inline))

/* Loops over components, in full, so that the loop over elements becomes vectors. */
#ifdef __clang__
#define ALL _Pragma("clang loop unroll(full)") for
#else
#define ALL _Pragma("GCC unroll 64") for
#endif

#define TWO_SUM(a, b, s, e)                  \
    do {                                     \
        s = (a) + (b);                       \
        const __typeof__(s) c_ = s - (a);    \
        e = ((a) - (s - c_)) + ((b) - c_);   \
    } while (0)

#define FAST_TWO_SUM(a, b, s, e)  \
    do {                          \
        s = (a) + (b);            \
        e = (b) - (s - (a));      \
    } while (0)

/* Return p = a b, rounded, and write the error of this rounding to lost: exact, or rounded once if it is
   subnormal; 0 if p is not finite. */
IN REAL product(REAL a, REAL b, REAL *lost) {
    const REAL p = a * b;
#ifdef DOUBLE
    const double size = fabs(p);
    const double e = fma(a, b, -p);
    *lost = size <= DBL_MAX ? e : 0;
#else
    const float e = (float)((double)a * b - p);
    *lost = fabsf(p) <= FLT_MAX ? e : 0;
#endif
    return p;
}

/* Pass once over n terms, last to first, without error. */
IN void vec_sum(REAL *terms, int n) {
    ALL (int k = n - 2; k >= 0; k--) {
        const REAL a = terms[k], b = terms[k + 1];
        TWO_SUM(a, b, terms[k], terms[k + 1]);
    }
}

/* Make components of n terms: after error-free passes, leave in each term the rounding of the rest. */
IN void distil(REAL *terms, int n, int passes) {
    ALL (int pass = 0; pass < passes; pass++) vec_sum(terms, n);
    ALL (int k = 0; k < n - 1; k++) {
        const REAL a = terms[k], b = terms[k + 1];
        FAST_TWO_SUM(a, b, terms[k], terms[k + 1]);
    }
}

/* Fraction bits and exponent bias of REAL. */
#ifdef DOUBLE
typedef int64_t BITS_OF_REAL;
#define DIGITS 52
#define BIAS 1023
#else
typedef int32_t BITS_OF_REAL;
#define DIGITS 23
#define BIAS 127
#endif

/* Return the exponent of a float; for subnormal numbers that of the least normal number. */
IN int exponent_of(REAL x) {
    union { REAL real; BITS_OF_REAL bits; } u = {x};
    const int field = (int)((u.bits >> DIGITS) & (2 * BIAS + 1));
    /* Infinities and NaN stay unscaled: no normal number is the reciprocal of their power of two. */
    return field == 0 ? 1 - BIAS : field > 2 * BIAS ? 0 : field - BIAS;
}

/* Return 2^exponent, for exponents of normal numbers. */
IN REAL power_of_two(int exponent) {
    union { BITS_OF_REAL bits; REAL real; } u = {(BITS_OF_REAL)(exponent + BIAS) << DIGITS};
    return u.real;
}

/* Write the components of a result. Infinities, NaN and signs of zeros are those of plain, the operation on
   the leading components, as IEEE defines it. */
IN void finish(const REAL *terms, REAL plain, REAL *z) {
    const REAL lead = terms[0];
    const int special = !(REAL_ABS(lead) <= REAL_MAX);
    z[0] = special | ((lead == 0) & (plain == 0)) ? plain : lead;
    ALL (int k = 1; k < NC; k++) z[k] = special ? 0 : terms[k];
}
