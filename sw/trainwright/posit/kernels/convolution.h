/* Convolutions, image by image, so that the patches of one stay in the cache. */

/* Geometry of a convolution, in pairs (vertical, horizontal); before: zeros above and on the left
   (less than 0: lines left out). */
typedef struct {
    int64_t channels, size[2], kernel[2], stride[2], before[2], dilation[2], out[2];
} window;

/* Write a line of a patch matrix: out[i] = x[first + i stride], zero outside 0 .. size - 1. */
static inline void unfold_line(const REAL *restrict x, int64_t size, int64_t first, int64_t stride,
                               REAL *restrict out, int64_t count) {
    if (stride == 1) {
        const int64_t low = first < 0 ? (-first < count ? -first : count) : 0;
        const int64_t end = size - first < count ? size - first : count;
        const int64_t high = end < low ? low : end;
        for (int64_t i = 0; i < low; i++) out[i] = 0;
        for (int64_t i = low; i < high; i++) out[i] = x[first + i];
        for (int64_t i = high; i < count; i++) out[i] = 0;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = first + i * stride;
        out[i] = at >= 0 && at < size ? x[at] : 0;
    }
}

/* The patches of an image (channels, height, width) that the kernel meets: columns, whose rows are
   (channel, row, column) of the kernel and lie pace apart. */
static void unfold(const REAL *x, const window *w, REAL *columns, int64_t pace) {
    for (int64_t c = 0; c < w->channels; c++)
        for (int64_t p = 0; p < w->kernel[0]; p++)
            for (int64_t q = 0; q < w->kernel[1]; q++, columns += pace)
                for (int64_t y = 0; y < w->out[0]; y++) {
                    const int64_t line = y * w->stride[0] - w->before[0] + p * w->dilation[0];
                    const int64_t first = q * w->dilation[1] - w->before[1];
                    const int inside = line >= 0 && line < w->size[0];
                    unfold_line(x + (inside ? (c * w->size[0] + line) * w->size[1] : 0),
                                inside ? w->size[1] : 0, first, w->stride[1],
                                columns + y * w->out[1], w->out[1]);
                }
}

/* Write the transposed patch matrix: a line of (channel, row, column) for each position. */
static void unfold_across(const REAL *x, const window *w, REAL *lines) {
    const int64_t height = w->size[0], width = w->size[1], across = w->kernel[1];
    for (int64_t y = 0; y < w->out[0]; y++)
        for (int64_t z = 0; z < w->out[1]; z++) {
            const int64_t first = z * w->stride[1] - w->before[1];
            const int whole = w->dilation[1] == 1 && first >= 0 && first + across <= width;
            for (int64_t c = 0; c < w->channels; c++)
                for (int64_t p = 0; p < w->kernel[0]; p++, lines += across) {
                    const int64_t line = y * w->stride[0] - w->before[0] + p * w->dilation[0];
                    const int inside = line >= 0 && line < height;
                    const REAL *from = x + (inside ? (c * height + line) * width : 0);
                    if (inside && whole)
                        for (int64_t q = 0; q < across; q++) lines[q] = from[first + q];
                    else
                        unfold_line(from, inside ? width : 0, first, w->dilation[1], lines, across);
                }
        }
}

/* lines (groups, batch, positions, depth): the patches of x (batch, groups, channels, ...). */
void posit_lines(const REAL *x, REAL *lines, const window *w, int64_t batch, int64_t groups) {
    const int64_t image = w->channels * w->size[0] * w->size[1];
    const int64_t each = w->out[0] * w->out[1] * w->channels * w->kernel[0] * w->kernel[1];
    for (int64_t i = 0; i < batch; i++)
        for (int64_t g = 0; g < groups; g++)
            unfold_across(x + (i * groups + g) * image, w, lines + (g * batch + i) * each);
}

/* out (batch, groups, m, positions) += rows (groups, m, depth) times the patches of x (batch,
   groups, channels, height, width), every operation rounded. scratch: depth * positions. */
void posit_convolve_sequential(const REAL *x, const REAL *rows, REAL *out, REAL *scratch,
                               const window *w, int64_t batch, int64_t groups, int64_t m,
                               int64_t to_odd, int64_t n, int64_t es) {
    const grid g = grid_of((int)n, (int)es);
    const quick q = quick_of((int)n, (int)es);
    const int64_t depth = w->channels * w->kernel[0] * w->kernel[1];
    const int64_t image = w->channels * w->size[0] * w->size[1], positions = w->out[0] * w->out[1];
    for (int64_t i = 0; i < batch * groups; i++) {
        unfold(x + i * image, w, scratch, positions);
        product(rows + i % groups * m * depth, scratch, out + i * m * positions, m, depth,
                positions, to_odd != 0, g, &q);
    }
}

#ifdef DOUBLE
enum { LINES = 4, ACROSS = 32 };

/* sums (lines, ACROSS) of a (lines, depth) times b (depth, pace) at its first columns */
static inline void tile(const double *restrict a, const double *restrict b, int64_t depth,
                        int64_t pace, const int lines, double sums[LINES][ACROSS]) {
    double kept[LINES][ACROSS] = {{0}};
    for (int64_t k = 0; k < depth; k++)
        for (int r = 0; r < lines; r++)
            for (int j = 0; j < ACROSS; j++) kept[r][j] += a[r * depth + k] * b[k * pace + j];
    memcpy(sums, kept, sizeof kept);
}

/* total (m, columns) += a (m, depth) b; rows of b are pace apart, a multiple of ACROSS. */
static void multiply(const double *a, const double *b, double *total, int64_t m, int64_t depth,
                     int64_t columns, int64_t pace) {
    double sums[LINES][ACROSS];
    for (int64_t j = 0; j < columns; j += ACROSS)
        for (int64_t i = 0; i < m;) {
            const int64_t lines = m - i < LINES ? 1 : LINES;
            if (lines == LINES) tile(a + i * depth, b + j, depth, pace, LINES, sums);
            else tile(a + i * depth, b + j, depth, pace, 1, sums);
            const int64_t used = columns - j < ACROSS ? columns - j : ACROSS;
            for (int64_t r = 0; r < lines; r++)
                for (int64_t s = 0; s < used; s++) total[(i + r) * columns + j + s] += sums[r][s];
            i += lines;
        }
}

/* Convolve with exact sums, each rounded once. total: holds what the sums start from; start: a copy of
   it, or NULL for 0. out: as for decide. scratch: depth * pace, pace being positions up to a multiple
   of ACROSS, and zero; length and least: m + positions. */
void posit_convolve_quire(const double *x, const double *rows, const double *start, double *total,
                          single *out, double *scratch, double *length, int64_t *least,
                          const window *w, int64_t batch, int64_t groups, int64_t m, int64_t n,
                          int64_t es) {
    const int64_t depth = w->channels * w->kernel[0] * w->kernel[1];
    const int64_t image = w->channels * w->size[0] * w->size[1], positions = w->out[0] * w->out[1];
    const int64_t pace = (positions + ACROSS - 1) / ACROSS * ACROSS;
    for (int64_t i = 0; i < batch * groups; i++) {
        const double *a = rows + i % groups * m * depth;
        const int64_t at = i * m * positions;
        unfold(x + i * image, w, scratch, pace);
        multiply(a, scratch, total + at, m, depth, positions, pace);
        decide(a, scratch, start ? start + at : 0, total + at, out ? out + at : 0, m, depth, positions,
               pace, length, least, (int)n, (int)es);
    }
}
#endif
