/* The rounding rule on one lane, in float, or with -DDOUBLE in double. Branch-free, for the
   vectoriser. */

#ifdef DOUBLE
typedef double REAL;
typedef int64_t INT; /* the integers of equal width */
typedef uint64_t UINT;
enum { FRACTION = 52 }; /* fraction bits */
#else
typedef float REAL;
typedef int32_t INT;
typedef uint32_t UINT;
enum { FRACTION = 23 };
#endif

enum { BITS = 8 * (int)sizeof(REAL) };
#define MAGNITUDE ((INT)(~(UINT)0 >> 1))
#define EXPONENT_ONE ((INT)1 << FRACTION)
#define INFINITE (MAGNITUDE & ~(EXPONENT_ONE - 1)) /* infinity's pattern */

static inline INT bits_of(REAL x) {
    INT bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline REAL real_of(INT bits) {
    REAL x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Constants of a format for rounding. */
typedef struct {
    INT least, most; /* patterns of minpos, and next below maxpos, which rounds to it */
    INT shift;       /* added to a pattern, so that a regime starts at a multiple of 2^es, */
    INT zero;        /* with this number in front where the regime is 0; see grid_of */
    INT regime;      /* bits below the regime: fraction and es */
    INT base;        /* bits lost at regime 0 or -1 */
} grid;

static grid grid_of(int n, int es) {
    const INT bias = ((INT)1 << (BITS - 2 - FRACTION)) - 1;
    const INT top = (INT)(n - 2) << es;
    grid g;
    g.least = (bias - top) << FRACTION;
    g.most = ((bias + top) << FRACTION) - 1;
    g.regime = FRACTION + es;
    /* If no bit of exponent and fraction is left, the last bit kept is that of the regime: 0 in
       the uppermost regime but one, n - 3, and 1 in the lowest, 2 - n. So is the parity of the
       number in front, one being added for even n. */
    g.shift = EXPONENT_ONE + (n % 2 ? 0 : (INT)1 << g.regime);
    g.zero = ((bias + 1) >> es) + (n % 2 ? 0 : 1);
    g.base = g.regime + (n > 2 ? 3 - n : 0);
    return g;
}

/* The nearest value of the format, ties to the even word; NaN for NaN and infinities. */
static inline REAL rounded(REAL x, grid g) {
    const INT bits = bits_of(x), size = bits & MAGNITUDE;
    INT s = size > g.most ? g.most : size;
    s = (s < g.least ? g.least : s) + g.shift;
    const INT k = (s >> g.regime) - g.zero;
    const INT lost = (k ^ (k >> (BITS - 1))) + g.base;
    const INT unit = (INT)1 << lost, odd = (s >> lost) & 1;
    s = ((s + (unit >> 1) - 1 + odd) & -unit) - g.shift;
    s |= bits & ~MAGNITUDE; /* the sign */
    s = size == 0 ? 0 : s;
    s = size >= INFINITE ? INFINITE | (EXPONENT_ONE >> 1) : s;
    return real_of(s);
}
