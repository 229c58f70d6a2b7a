/* The instruction set, written by ``python -m trainwright.program.records``. */
#ifndef TRAINWRIGHT_ISA_H
#define TRAINWRIGHT_ISA_H

#include <stdint.h>

#define ISA_DIGEST 2920828654u

#ifdef __cplusplus
namespace isa {
#endif

enum { HALT = 0, LOAD = 1, STORE = 2, PE3 = 5, BIAS = 6, MASK = 7, LOOP = 8, END = 9, SET = 10, PE4 = 11, VECTOR = 12, CODE = 13, SAMPLES = 14, SCALES = 15 };

enum { TARGET_SCRATCHPAD = 0, TARGET_PROGRAM = 3 };

enum { SCALAR_KIND_NONE = 0, SCALAR_KIND_VALUE = 1, SCALAR_KIND_POWER = 2, SCALAR_KIND_SHIFT = 3 };

enum { KIND_PASS = 0, KIND_PRODUCT = 1, KIND_TABLE = 2, KIND_SUM = 3, KIND_GREATEST = 4, KIND_MAXIMUM = 5, KIND_MINIMUM = 6, KIND_LENGTH = 7, KIND_AND = 8, KIND_LANE = 9 };

enum { MEMORY_NONE = 0, MEMORY_READ = 1, MEMORY_WRITE = 2 };

enum { ADDEND_NOTHING = 0, ADDEND_PLUS = 1, ADDEND_MINUS = 2, ADDEND_CONSTANT = 3 };

enum { SHIFT_BY_FIELD = 0, SHIFT_BY_C = 1, SHIFT_BY_A = 2, SHIFT_BY_SCALAR = 3 };

enum { ROUNDING_FLOOR = 0, ROUNDING_EVEN = 1, ROUNDING_UP = 2, ROUNDING_RANDOM = 3, ROUNDING_RANDOM_NEXT = 4 };

enum { WHEN_ALWAYS = 0, WHEN_POSITIVE = 1, WHEN_NEGATIVE = 2, WHEN_ZERO = 3 };

enum { TOTAL_NONE = 0, TOTAL_SUM = 1, TOTAL_COUNT = 2 };

enum { OPERATIONS = 16, TRACES = 3 };

/* The second operand: rows, groups of words, or entries, one for each lane. */
enum { BY_ROWS, BY_GROUPS, BY_ENTRIES };

static inline int second_operand(int64_t operation)
{
    static const signed char of[] = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0};
    return of[operation];
}

static inline int trace_of(int64_t operation)
{
    static const signed char of[] = {-1, 0, -1, -1, -1, 2, 2, 2, -1, -1, -1, 1, 2, 2, 0, -1};
    return of[operation];
}

enum { NEST_LEVELS = 10, TRANSFER_LEVELS = 3, REGISTERS = 8, ORDER_BITS = 24, DIGIT_WIDTH = 7, LEAST_OF_FILE = -128, GREATEST_OF_FILE = 127, MOST_SHIFT = 63, MOST_POWER = 16, SHIFTS = 4, WIDTH = 36, FACTOR_WIDTH = 18, VECTOR_REGISTERS = 8, THREADS = 8, STREAMS = 8, CODE_DEPTH = 64 };

/* First bit and width of each field in the encoding, of repeated ones of number 0. */

enum {
    HALT_COMMAND_BITS = 12,  /* what engines see */
    HALT_OPERATION = 0, HALT_OPERATION_BITS = 4,
    HALT_WAIT = 4, HALT_WAIT_BITS = 4,
    HALT_WAIT_OLDER = 8, HALT_WAIT_OLDER_BITS = 4,
};

enum {
    TRANSFER_COMMAND_BITS = 294,  /* what engines see */
    TRANSFER_OPERATION = 0, TRANSFER_OPERATION_BITS = 4,
    TRANSFER_WAIT = 4, TRANSFER_WAIT_BITS = 4,
    TRANSFER_WAIT_OLDER = 8, TRANSFER_WAIT_OLDER_BITS = 4,
    TRANSFER_TARGET = 12, TRANSFER_TARGET_BITS = 2,
    TRANSFER_ELEMENT_BYTES = 14, TRANSFER_ELEMENT_BYTES_BITS = 2,
    TRANSFER_ADDRESS = 16, TRANSFER_ADDRESS_BITS = 32,
    TRANSFER_ADDRESS_REGISTER = 48, TRANSFER_ADDRESS_REGISTER_BITS = 3,
    TRANSFER_LOCAL = 51, TRANSFER_LOCAL_BITS = 20,
    TRANSFER_LOCAL_REGISTER = 71, TRANSFER_LOCAL_REGISTER_BITS = 3,
    TRANSFER_BEATS = 74, TRANSFER_BEATS_BITS = 16,
    TRANSFER_COUNT = 90, TRANSFER_COUNT_BITS = 16,
    TRANSFER_ADDRESS_DELTA = 106, TRANSFER_ADDRESS_DELTA_BITS = 32,
    TRANSFER_LOCAL_DELTA = 138, TRANSFER_LOCAL_DELTA_BITS = 20,
    TRANSFER_LEVEL_STEP = 68,
    TRANSFER_EIGHTH = 294, TRANSFER_EIGHTH_BITS = 4,
};

enum {
    COMPUTE_COMMAND_BITS = 956,  /* what engines see */
    COMPUTE_OPERATION = 0, COMPUTE_OPERATION_BITS = 4,
    COMPUTE_WAIT = 4, COMPUTE_WAIT_BITS = 4,
    COMPUTE_WAIT_OLDER = 8, COMPUTE_WAIT_OLDER_BITS = 4,
    COMPUTE_X_BASE = 12, COMPUTE_X_BASE_BITS = 20,
    COMPUTE_X_REGISTER = 32, COMPUTE_X_REGISTER_BITS = 3,
    COMPUTE_G_BASE = 35, COMPUTE_G_BASE_BITS = 20,
    COMPUTE_G_REGISTER = 55, COMPUTE_G_REGISTER_BITS = 3,
    COMPUTE_Z_BASE = 58, COMPUTE_Z_BASE_BITS = 20,
    COMPUTE_Z_REGISTER = 78, COMPUTE_Z_REGISTER_BITS = 3,
    COMPUTE_X_ROW_STRIDE = 81, COMPUTE_X_ROW_STRIDE_BITS = 20,
    COMPUTE_Z_ROW_STRIDE = 101, COMPUTE_Z_ROW_STRIDE_BITS = 20,
    COMPUTE_G_ROW_STRIDE = 121, COMPUTE_G_ROW_STRIDE_BITS = 20,
    COMPUTE_REDUCE_LEVELS = 141, COMPUTE_REDUCE_LEVELS_BITS = 4,
    COMPUTE_TILE_LEVEL = 145, COMPUTE_TILE_LEVEL_BITS = 4,
    COMPUTE_LAST_ROWS = 149, COMPUTE_LAST_ROWS_BITS = 5,
    COMPUTE_SHIFT = 154, COMPUTE_SHIFT_BITS = 6,
    COMPUTE_OUT_WIDTH = 160, COMPUTE_OUT_WIDTH_BITS = 5,
    COMPUTE_SLOT = 165, COMPUTE_SLOT_BITS = 10,
    COMPUTE_RELU = 175, COMPUTE_RELU_BITS = 1,
    COMPUTE_X_SHIFT = 176, COMPUTE_X_SHIFT_BITS = 4,
    COMPUTE_G_SHIFT = 180, COMPUTE_G_SHIFT_BITS = 4,
    COMPUTE_COUNT = 184, COMPUTE_COUNT_BITS = 16,
    COMPUTE_X_DELTA = 200, COMPUTE_X_DELTA_BITS = 20,
    COMPUTE_G_DELTA = 220, COMPUTE_G_DELTA_BITS = 20,
    COMPUTE_Z_DELTA = 240, COMPUTE_Z_DELTA_BITS = 20,
    COMPUTE_LEVEL_STEP = 76,
    COMPUTE_STOCHASTIC = 944, COMPUTE_STOCHASTIC_BITS = 1,
    COMPUTE_X_FORMAT = 945, COMPUTE_X_FORMAT_BITS = 3,
    COMPUTE_G_FORMAT = 948, COMPUTE_G_FORMAT_BITS = 3,
    COMPUTE_Z_FORMAT = 951, COMPUTE_Z_FORMAT_BITS = 3,
    COMPUTE_UNDERFLOW_ZERO = 954, COMPUTE_UNDERFLOW_ZERO_BITS = 1,
    COMPUTE_DIGITS = 955, COMPUTE_DIGITS_BITS = 1,
    COMPUTE_X_EXPONENT = 956, COMPUTE_X_EXPONENT_BITS = 10,
    COMPUTE_G_EXPONENT = 966, COMPUTE_G_EXPONENT_BITS = 10,
    COMPUTE_Z_EXPONENT = 976, COMPUTE_Z_EXPONENT_BITS = 10,
    COMPUTE_EXACT = 986, COMPUTE_EXACT_BITS = 1,
    COMPUTE_GROWS = 987, COMPUTE_GROWS_BITS = 1,
};

enum {
    LOOP_COMMAND_BITS = 28,  /* what engines see */
    LOOP_OPERATION = 0, LOOP_OPERATION_BITS = 4,
    LOOP_WAIT = 4, LOOP_WAIT_BITS = 4,
    LOOP_WAIT_OLDER = 8, LOOP_WAIT_OLDER_BITS = 4,
    LOOP_ITERATIONS = 12, LOOP_ITERATIONS_BITS = 16,
};

enum {
    END_COMMAND_BITS = 276,  /* what engines see */
    END_OPERATION = 0, END_OPERATION_BITS = 4,
    END_WAIT = 4, END_WAIT_BITS = 4,
    END_WAIT_OLDER = 8, END_WAIT_OLDER_BITS = 4,
    END_MASK = 12, END_MASK_BITS = 8,
    END_VALUE = 20, END_VALUE_BITS = 32,
    END_VALUE_STEP = 32,
    END_BY_STEP = 276, END_BY_STEP_BITS = 1,
};

enum {
    SET_COMMAND_BITS = 276,  /* what engines see */
    SET_OPERATION = 0, SET_OPERATION_BITS = 4,
    SET_WAIT = 4, SET_WAIT_BITS = 4,
    SET_WAIT_OLDER = 8, SET_WAIT_OLDER_BITS = 4,
    SET_MASK = 12, SET_MASK_BITS = 8,
    SET_VALUE = 20, SET_VALUE_BITS = 32,
    SET_VALUE_STEP = 32,
    SET_BY_STEP = 276, SET_BY_STEP_BITS = 1,
};

enum {
    VECTOR_COMMAND_BITS = 734,  /* what engines see */
    VECTOR_OPERATION = 0, VECTOR_OPERATION_BITS = 4,
    VECTOR_WAIT = 4, VECTOR_WAIT_BITS = 4,
    VECTOR_WAIT_OLDER = 8, VECTOR_WAIT_OLDER_BITS = 4,
    VECTOR_ENTRY = 12, VECTOR_ENTRY_BITS = 6,
    VECTOR_LENGTH = 18, VECTOR_LENGTH_BITS = 6,
    VECTOR_ROWS = 24, VECTOR_ROWS_BITS = 24,
    VECTOR_INNER = 48, VECTOR_INNER_BITS = 16,
    VECTOR_KEY = 64, VECTOR_KEY_BITS = 20,
    VECTOR_SLOT = 84, VECTOR_SLOT_BITS = 10,
    VECTOR_READS = 94, VECTOR_READS_BITS = 8,
    VECTOR_WRITES = 102, VECTOR_WRITES_BITS = 8,
    VECTOR_CONSTANT = 110, VECTOR_CONSTANT_BITS = 18,
    VECTOR_CONSTANT_STEP = 18,
    VECTOR_BASE = 254, VECTOR_BASE_BITS = 20,
    VECTOR_OUTER_DELTA = 274, VECTOR_OUTER_DELTA_BITS = 20,
    VECTOR_INNER_DELTA = 294, VECTOR_INNER_DELTA_BITS = 20,
    VECTOR_STREAM_STEP = 60,
    VECTOR_SCALAR = 734, VECTOR_SCALAR_BITS = 2,
    VECTOR_STRICT = 736, VECTOR_STRICT_BITS = 1,
    VECTOR_TO = 737, VECTOR_TO_BITS = 3,
    VECTOR_PLUS = 740, VECTOR_PLUS_BITS = 10,
    VECTOR_MINUS = 750, VECTOR_MINUS_BITS = 10,
    VECTOR_OFFSET = 760, VECTOR_OFFSET_BITS = 7,
    VECTOR_SCALAR_STEP = 33,
    VECTOR_EIGHTH = 866, VECTOR_EIGHTH_BITS = 4,
};

enum {
    CODE_COMMAND_BITS = 1023,  /* what engines see */
    CODE_OPERATION = 0, CODE_OPERATION_BITS = 4,
    CODE_WAIT = 4, CODE_WAIT_BITS = 4,
    CODE_WAIT_OLDER = 8, CODE_WAIT_OLDER_BITS = 4,
    CODE_FIRST = 12, CODE_FIRST_BITS = 6,
    CODE_INSTRUCTIONS = 18, CODE_INSTRUCTIONS_BITS = 5,
    CODE_WORD = 23, CODE_WORD_BITS = 50,
    CODE_WORD_STEP = 50,
};

enum {
    SAMPLES_COMMAND_BITS = 279,  /* what engines see */
    SAMPLES_OPERATION = 0, SAMPLES_OPERATION_BITS = 4,
    SAMPLES_WAIT = 4, SAMPLES_WAIT_BITS = 4,
    SAMPLES_WAIT_OLDER = 8, SAMPLES_WAIT_OLDER_BITS = 4,
    SAMPLES_TARGET = 12, SAMPLES_TARGET_BITS = 2,
    SAMPLES_PIXEL_BYTES = 14, SAMPLES_PIXEL_BYTES_BITS = 2,
    SAMPLES_ADDRESS = 16, SAMPLES_ADDRESS_BITS = 32,
    SAMPLES_ADDRESS_REGISTER = 48, SAMPLES_ADDRESS_REGISTER_BITS = 3,
    SAMPLES_LOCAL = 51, SAMPLES_LOCAL_BITS = 20,
    SAMPLES_LOCAL_REGISTER = 71, SAMPLES_LOCAL_REGISTER_BITS = 3,
    SAMPLES_RECORD_BEATS = 74, SAMPLES_RECORD_BEATS_BITS = 16,
    SAMPLES_SAMPLES = 90, SAMPLES_SAMPLES_BITS = 16,
    SAMPLES_STRIDE = 106, SAMPLES_STRIDE_BITS = 32,
    SAMPLES_LOCAL_STEP = 138, SAMPLES_LOCAL_STEP_BITS = 20,
    SAMPLES_TARGETS = 158, SAMPLES_TARGETS_BITS = 20,
    SAMPLES_INPUT_BITS = 178, SAMPLES_INPUT_BITS_BITS = 4,
    SAMPLES_DRAWN = 182, SAMPLES_DRAWN_BITS = 1,
    SAMPLES_TOTAL = 183, SAMPLES_TOTAL_BITS = 24,
    SAMPLES_ORDER_MASK = 207, SAMPLES_ORDER_MASK_BITS = 24,
    SAMPLES_ORDER_FIRST = 231, SAMPLES_ORDER_FIRST_BITS = 24,
    SAMPLES_ORDER_LENGTH = 255, SAMPLES_ORDER_LENGTH_BITS = 24,
};

enum {
    MOVE_SCALES_COMMAND_BITS = 923,  /* what engines see */
    MOVE_SCALES_OPERATION = 0, MOVE_SCALES_OPERATION_BITS = 4,
    MOVE_SCALES_WAIT = 4, MOVE_SCALES_WAIT_BITS = 4,
    MOVE_SCALES_WAIT_OLDER = 8, MOVE_SCALES_WAIT_OLDER_BITS = 4,
    MOVE_SCALES_ENTRIES = 12, MOVE_SCALES_ENTRIES_BITS = 11,
    MOVE_SCALES_EXPONENT = 23, MOVE_SCALES_EXPONENT_BITS = 16,
    MOVE_SCALES_STATISTICS = 39, MOVE_SCALES_STATISTICS_BITS = 16,
    MOVE_SCALES_COPY = 55, MOVE_SCALES_COPY_BITS = 18,
    MOVE_SCALES_LOW = 73, MOVE_SCALES_LOW_BITS = 50,
    MOVE_SCALES_HIGH = 123, MOVE_SCALES_HIGH_BITS = 50,
    MOVE_SCALES_ENTRY_STEP = 150,
};

enum {
    INSTRUCTION_COMMAND_BITS = 50,  /* what engines see */
    INSTRUCTION_KIND = 0, INSTRUCTION_KIND_BITS = 4,
    INSTRUCTION_MEMORY = 4, INSTRUCTION_MEMORY_BITS = 2,
    INSTRUCTION_STREAM = 6, INSTRUCTION_STREAM_BITS = 3,
    INSTRUCTION_USE_K = 9, INSTRUCTION_USE_K_BITS = 1,
    INSTRUCTION_A = 10, INSTRUCTION_A_BITS = 3,
    INSTRUCTION_B = 13, INSTRUCTION_B_BITS = 3,
    INSTRUCTION_C = 16, INSTRUCTION_C_BITS = 3,
    INSTRUCTION_K = 19, INSTRUCTION_K_BITS = 3,
    INSTRUCTION_ADDEND = 22, INSTRUCTION_ADDEND_BITS = 2,
    INSTRUCTION_SHIFT = 24, INSTRUCTION_SHIFT_BITS = 6,
    INSTRUCTION_SHIFT_BY = 30, INSTRUCTION_SHIFT_BY_BITS = 2,
    INSTRUCTION_ROUNDING = 32, INSTRUCTION_ROUNDING_BITS = 3,
    INSTRUCTION_WRAP = 35, INSTRUCTION_WRAP_BITS = 1,
    INSTRUCTION_WIDTH = 36, INSTRUCTION_WIDTH_BITS = 6,
    INSTRUCTION_WHEN = 42, INSTRUCTION_WHEN_BITS = 2,
    INSTRUCTION_KEEP = 44, INSTRUCTION_KEEP_BITS = 1,
    INSTRUCTION_D = 45, INSTRUCTION_D_BITS = 3,
    INSTRUCTION_TOTAL = 48, INSTRUCTION_TOTAL_BITS = 2,
};

/* Descriptors as records: their attributes, not their encoding. */

typedef struct {
    int64_t count, address, local;
} TransferLevel;

typedef struct {
    int64_t count, x, g, z;
} Level;

typedef struct {
    int64_t base, outer, inner;
} Stream;

typedef struct {
    int64_t kind, strict, to, plus, minus, offset;
} Scalar;

typedef struct {
    int64_t exponent, statistics, copy, low, high;
} ScaleEntry;

typedef struct {
    int kind, memory, stream, use_k, a, b, c, k, addend, shift, shift_by, rounding, wrap, width, when, keep, d, total;
} Instruction;

static inline Instruction unpacked_instruction(uint64_t word)
{
    Instruction element;
    element.kind = (int)(word >> 0 & 15);
    element.memory = (int)(word >> 4 & 3);
    element.stream = (int)(word >> 6 & 7);
    element.use_k = (int)(word >> 9 & 1);
    element.a = (int)(word >> 10 & 7);
    element.b = (int)(word >> 13 & 7);
    element.c = (int)(word >> 16 & 7);
    element.k = (int)(word >> 19 & 7);
    element.addend = (int)(word >> 22 & 3);
    element.shift = (int)(word >> 24 & 63);
    element.shift_by = (int)(word >> 30 & 3);
    element.rounding = (int)(word >> 32 & 7);
    element.wrap = (int)(word >> 35 & 1);
    element.width = (int)(word >> 36 & 63);
    element.when = (int)(word >> 42 & 3);
    element.keep = (int)(word >> 44 & 1);
    element.d = (int)(word >> 45 & 7);
    element.total = (int)(word >> 48 & 3);
    return element;
}

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
} Halt;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t target;
    int64_t element_bytes;
    int64_t address;
    int64_t address_register;
    int64_t local;
    int64_t local_register;
    int64_t beats;
    int64_t eighth;
    int64_t levels;
    TransferLevel level[3];
} Transfer;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t x;
    int64_t x_register;
    int64_t g;
    int64_t g_register;
    int64_t z;
    int64_t z_register;
    int64_t x_row_stride;
    int64_t z_row_stride;
    int64_t g_row_stride;
    int64_t reduce_levels;
    int64_t tile_level;
    int64_t last_rows;
    int64_t shift;
    int64_t out_width;
    int64_t slot;
    int64_t relu;
    int64_t x_shift;
    int64_t g_shift;
    int64_t stochastic;
    int64_t x_format;
    int64_t g_format;
    int64_t z_format;
    int64_t underflow_zero;
    int64_t digits;
    int64_t x_exponent;
    int64_t g_exponent;
    int64_t z_exponent;
    int64_t exact;
    int64_t grows;
    int64_t levels;
    Level level[10];
    int64_t overlaps;
    int64_t repeats;
    int64_t x_width;
    int64_t g_width;
} Compute;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t iterations;
} Loop;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t mask;
    int64_t by_step;
    int64_t value[8];
} End;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t mask;
    int64_t by_step;
    int64_t value[8];
} Set;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t entry;
    int64_t length;
    int64_t outer;
    int64_t rows;
    int64_t inner;
    int64_t key;
    int64_t slot;
    int64_t reads;
    int64_t writes;
    int64_t eighth;
    int64_t constants;
    int64_t streams;
    int64_t scalars;
    int64_t constant[8];
    Stream stream[8];
    Scalar scalar[4];
} Vector;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t first;
    int64_t instruction_count;
    int64_t instructions;
    int64_t word[20];
} Code;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t target;
    int64_t pixels;
    int64_t address;
    int64_t address_register;
    int64_t local;
    int64_t local_register;
    int64_t beats;
    int64_t samples;
    int64_t stride;
    int64_t local_step;
    int64_t targets;
    int64_t input_bits;
    int64_t drawn;
    int64_t total;
    int64_t order_mask;
    int64_t order_first;
    int64_t order_length;
} Samples;

typedef struct {
    int64_t operation;
    int64_t wait;
    int64_t wait_older;
    int64_t entry_count;
    int64_t entries;
    ScaleEntry entry[6];
} MoveScales;

typedef union {
    int64_t operation; /* says which */
    Halt halt;
    Transfer transfer;
    Compute compute;
    Loop loop;
    End end;
    Set set;
    Vector vector;
    Code code;
    Samples samples;
    MoveScales move_scales;
} Descriptor;

#ifdef __cplusplus
}
#endif

#endif
