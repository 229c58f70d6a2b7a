/* Evaluate an expression of element-wise operations block by block: values between the
   operations stay in the first-level cache, and each operand is read from memory once. */

/* Elements of a block: 12 values of two floats take 24 KiB. */
#define FUSED_BLOCK 256
/* Limit shared with expressions.py. */
#define MOST_VALUES 16

typedef void Binary(const REAL *restrict, int64_t, int64_t, const REAL *restrict, int64_t, int64_t,
                    REAL *restrict, int64_t, int64_t);

/* Write -y. Ignore x, which is there because all operations have one form. */
void mcf_negate(const REAL *restrict x, int64_t plane_x, int64_t step_x, const REAL *restrict y,
                int64_t plane_y, int64_t step_y, REAL *restrict out, int64_t plane, int64_t count) {
    (void)x, (void)plane_x, (void)step_x;
    for (int k = 0; k < NC; k++)
        for (int64_t i = 0; i < count; i++) out[k * plane + i] = -y[k * plane_y + i * step_y];
}

/* Keep the order of _OPERATIONS in expressions.py. */
static Binary *const BINARIES[] = {mcf_add, mcf_add_plain, mcf_mul, mcf_mul_plain,
                                   mcf_div, mcf_div_plain, mcf_plain_div, mcf_negate};

typedef struct {
    const REAL *at;
    int64_t plane, step;
} Value;

/* code: operation, first and second value of each step. Values are numbered: the given ones, each a
   pointer, a plane and a step, then the results of the steps, the last of which is written out. */
void mcf_fused(const int64_t *code, int64_t length, const int64_t *given, int64_t many,
               REAL *restrict out, int64_t count) {
    REAL results[MOST_VALUES][NC * FUSED_BLOCK];
    Value values[2 * MOST_VALUES];
    for (int64_t begin = 0; begin < count; begin += FUSED_BLOCK) {
        const int64_t filled = count - begin < FUSED_BLOCK ? count - begin : FUSED_BLOCK;
        for (int64_t v = 0; v < many; v++) {
            const int64_t *each = given + 3 * v;
            values[v] = (Value){(const REAL *)each[0] + begin * each[2], each[1], each[2]};
        }
        for (int64_t s = 0; s < length; s++) {
            const Value x = values[code[3 * s + 1]], y = values[code[3 * s + 2]];
            const int64_t step = x.step | y.step;
            REAL *to = s + 1 == length ? out + begin : results[s];
            const int64_t plane = s + 1 == length ? count : FUSED_BLOCK;
            /* Two values with a step of 0, one for all elements, give one result for all elements. */
            BINARIES[code[3 * s]](x.at, x.plane, step ? x.step : 1, y.at, y.plane, step ? y.step : 1,
                                  to, plane, step ? filled : 1);
            values[many + s] = (Value){to, plane, step};
        }
    }
}
