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

/* What the rounding needs of a format, in this type. */
typedef struct {
    INT least, most; /* patterns of minpos and maxpos */
    INT regime;      /* bits below the regime: fraction and es */
    INT zero;        /* the exponent field of 1.0, shifted by one, in regimes */
    INT base;        /* bits lost at regime 0 or -1 */
} grid;

static grid grid_of(int n, int es) {
    const INT bias = ((INT)1 << (BITS - 2 - FRACTION)) - 1;
    const INT top = (INT)(n - 2) << es;
    grid g;
    g.least = (bias - top) << FRACTION;
    g.most = (bias + top) << FRACTION;
    g.regime = FRACTION + es;
    g.zero = (bias + 1) >> es;
    g.base = FRACTION + es + 3 - n;
    return g;
}

/* The nearest value of the format, ties to the even word; NaN for NaN and infinities. */
static inline REAL rounded(REAL x, grid g) {
    const INT bits = bits_of(x);
    const INT size = bits & MAGNITUDE;
    INT s = size < g.least ? g.least : size;
    s = (s > g.most ? g.most : s) + EXPONENT_ONE; /* a regime starts at a multiple of 2^es */
    const INT k = (s >> g.regime) - g.zero;
    const INT below = k >> (BITS - 1);
    INT lost = (k ^ below) + g.base;
    lost = lost > g.regime ? g.regime : lost;
    /* The last bit kept; with the exponent cut off it is the regime's: 1 below one, else 0. */
    const INT odd = lost == g.regime ? -below : (s >> lost) & 1;
    const INT unit = (INT)1 << lost;
    s = ((s + (unit >> 1) - 1 + odd) & -unit) - EXPONENT_ONE;
    s |= bits & ~MAGNITUDE; /* the sign */
    s = size == 0 ? 0 : s;
    s = size >= INFINITE ? INFINITE | (EXPONENT_ONE >> 1) : s;
    return real_of(s);
}
