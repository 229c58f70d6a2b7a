// Common interface of a compiled design, whichever engine compiled it.
//
// ports.h is generated with the design: PORT_x names the member of ports() for the port x,
// BEAT_BYTES and ROW_BYTES are the sizes of a beat of the memory port and of a traced row. An
// accelerator has ENGINES engines, ARRAYS is the mask of arrays, and EACH_TRACED names the TRACED
// engines that write rows.
// A Model has clock() and ports(); get, set, get_bytes and set_bytes access a port.
#pragma once

#include "ports.h"

#if defined(ENGINE_VERILATOR) || defined(ENGINE_LEAVES)
#include "model_verilator.h"
#elif defined(ENGINE_CXXRTL)
#include "model_cxxrtl.h"
#else
#error "no engine"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ports are copied as little-endian bytes"
#endif
