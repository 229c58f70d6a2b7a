/* lanes.h in float, beside its double version, under names that begin with "single". quire.h rounds
   by it: a vector has twice as many floats. */

#undef DOUBLE
#define REAL single
#define INT single_int
#define UINT single_uint
#define FRACTION SINGLE_FRACTION
#define BITS SINGLE_BITS
#define bits_of single_bits_of
#define real_of single_real_of
#define grid single_grid
#define grid_of single_grid_of
#define rounded single_rounded
#include "lanes.h"

/* Whether x lies halfway between two posits, or is infinite: another number that converts to the same
   float may round elsewhere. */
static inline int single_splits(single x, single_grid g) {
    const INT size = bits_of(x) & MAGNITUDE;
    INT s = size > g.most ? g.most : size;
    s = (s < g.least ? g.least : s) + g.shift;
    const INT k = (s >> g.regime) - g.zero;
    const INT unit = (INT)1 << ((k ^ (k >> (BITS - 1))) + g.base);
    return ((s & (unit - 1)) == unit >> 1) | (size == INFINITE);
}

#undef REAL
#undef INT
#undef UINT
#undef FRACTION
#undef BITS
#undef MAGNITUDE
#undef EXPONENT_ONE
#undef INFINITE
#undef bits_of
#undef real_of
#undef grid
#undef grid_of
#undef rounded
#define DOUBLE
