/* Arithmetic on expansions of NC floats, with -DDOUBLE of doubles. Called by trainwright.mcf.native,
   whose callers have torch paths of the same bits. */

#include <float.h>
#include <math.h>
#include <stdint.h>

#ifdef DOUBLE
typedef double REAL;
#define REAL_MAX DBL_MAX
#define REAL_ABS fabs
#else
typedef float REAL;
#define REAL_MAX FLT_MAX
#define REAL_ABS fabsf
#endif

#include "errorfree.h"

#include "arithmetic.h"

#include "loops.h"

#include "fused.h"

#include "products.h"
