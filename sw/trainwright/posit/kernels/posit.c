/* Posit arithmetic on floats that are on a posit grid; with -DDOUBLE, on doubles. Called by
   trainwright.posit.native, whose callers have torch paths of the same bits. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef DOUBLE
#include "single.h"
#endif
#include "lanes.h"

#include "codes.h"
#include "elementwise.h"

#ifdef DOUBLE
#include "odd.h"
#include "quire.h"
#endif

#include "sequential.h"

#include "convolution.h"
