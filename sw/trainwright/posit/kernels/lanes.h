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
    INT shift;       /* added to a pattern, so that a regime starts at a multiple of 2^es */
    INT zero;        /* bits above those of ``regime`` in the shifted pattern, for regime 0; see grid_of */
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
    /* Ties go to the even word, so the last bit that rounding keeps must be the last bit of the word.
       A word without exponent and fraction ends with its regime: with 0 in regime n - 3, the
       uppermost but one, and with 1 in regime 2 - n, the lowest. Rounding then keeps the parity of
       regime + zero. Adding 1 for even n gives this sum the parity of the word. */
    g.shift = EXPONENT_ONE + (n % 2 ? 0 : (INT)1 << g.regime);
    g.zero = ((bias + 1) >> es) + (n % 2 ? 0 : 1);
    g.base = g.regime + (n > 2 ? 3 - n : 0);
    return g;
}

/* Return the nearest value of the format, ties to the even word; NaN for NaN and infinities. */
static inline REAL rounded(REAL x, grid g) {
    const INT bits = bits_of(x), size = bits & MAGNITUDE;
    INT s = size > g.most ? g.most : size;
    s = (s < g.least ? g.least : s) + g.shift;
    const INT k = (s >> g.regime) - g.zero;
    /* Regime k takes k bits more than regime 0, or -k - 1 more than regime -1: XOR with the sign. */
    const INT lost = (k ^ (k >> (BITS - 1))) + g.base;
    const INT unit = (INT)1 << lost, odd = (s >> lost) & 1;
    s = ((s + (unit >> 1) - 1 + odd) & -unit) - g.shift;
    s |= bits & ~MAGNITUDE; /* the sign */
    s = size == 0 ? 0 : s;
    s = size >= INFINITE ? INFINITE | (EXPONENT_ONE >> 1) : s;
    return real_of(s);
}
