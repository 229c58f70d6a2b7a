/* Residues of fixed-point numbers and numbers of residues: trainwright.precision.residues in C.

   Arithmetic is of doubles that hold integers below 2^53, so that every operation up to the last
   rounding is exact: contracted or not, vectorised or not, the bits are those of the torch path. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef DOUBLE
typedef double REAL;
#else
typedef float REAL;
#endif

#define IN static inline __attribute__((always_inline))
#define LANES 8
#define VECTORS 8
#define BLOCK (LANES * VECTORS)
/* Constants shared with residues.py. */
#define WIDTH 28
#define MOST_DIGITS 7
#define MOST_MODULI 64
#define MOST_WORDS 12
#define WORD 38

typedef double V __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef int8_t BYTES __attribute__((vector_size(LANES), aligned(1), may_alias));

/* Adding and subtracting 1.5 2^52 rounds numbers below 2^51 to integers. */
#define MAGIC 6755399441055744.0
#define ROUND(x) (((x) + MAGIC) - MAGIC)

IN double power_of_two(int64_t exponent) {
    union { int64_t bits; double real; } u = {(exponent + 1023) << 52};
    return u.real;
}

IN int64_t clamp(int64_t x, int64_t least, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

/* Digits of BLOCK numbers of a row, of which `filled` exist. */
IN void digits_of(const REAL *x, int64_t plane, int64_t nc, int64_t filled, int64_t row_exponent,
                  const int32_t *exponents, double first, int64_t count,
                  double (*digits)[BLOCK]) {
    double low[BLOCK], high[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        const int64_t e = i < filled ? exponents[i] : 0;
        const int64_t up = clamp(-row_exponent - e, -2044, 2044), half = up >> 1;
        low[i] = power_of_two(half);
        high[i] = power_of_two(up - half);
    }
    memset(digits, 0, count * sizeof *digits);
    for (int64_t c = 0; c < nc; c++) {
        REAL part[BLOCK] = {0};
        double rest[BLOCK];
        memcpy(part, x + c * plane, filled * sizeof *part);
        for (int i = 0; i < BLOCK; i++) rest[i] = (double)part[i] * low[i] * high[i];
        for (int64_t l = 0; l < count; l++) {
            const double factor = l ? (double)(1 << WIDTH) : first;
            for (int i = 0; i < BLOCK; i++) {
                const double scaled = rest[i] * factor, digit = ROUND(scaled);
                digits[l][i] += digit;
                rest[i] = scaled - digit;
            }
        }
    }
}

/* out (moduli, rows, columns): the numbers 2^(bits - row - column exponent), rounded to integers,
   modulo each modulus. weights (moduli, digits): the digits' values. */
void residues_encode(const REAL *x, int64_t plane, int64_t nc, int64_t rows, int64_t columns,
                     const int32_t *row_exponents, const int32_t *column_exponents, int64_t first,
                     int64_t count, const double *weights, const double *moduli, int64_t many,
                     int8_t *out) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t begin = 0; begin < columns; begin += BLOCK) {
            double digits[MOST_DIGITS][BLOCK];
            const int64_t at = row * columns + begin;
            const int64_t filled = columns - begin < BLOCK ? columns - begin : BLOCK;
            digits_of(x + at, plane, nc, filled, row_exponents[row], column_exponents + begin,
                      power_of_two(first), count, digits);
            for (int64_t m = 0; m < many; m++) {
                const double *weight = weights + m * count, modulus = moduli[m];
                const double inverse = 1 / modulus;
                int8_t bytes[BLOCK];
                for (int v = 0; v < VECTORS; v++) {
                    V sum = *(const V *)(digits[0] + v * LANES) * weight[0];
                    for (int64_t l = 1; l < count; l++)
                        sum += *(const V *)(digits[l] + v * LANES) * weight[l];
                    const V quotient = ROUND(sum * inverse);
                    const V rest = sum - quotient * modulus;
                    for (int i = 0; i < LANES; i++) bytes[v * LANES + i] = (int8_t)(int32_t)rest[i];
                }
                int8_t *to = out + m * rows * columns + at;
                if (filled == BLOCK) memcpy(to, bytes, BLOCK);
                else memcpy(to, bytes, filled);
            }
        }
}

/* out = sums factor, modulo the modulus. */
void residues_reduce(const int32_t *restrict sums, int64_t count, int64_t modulus, int64_t factor,
                     int8_t *restrict out) {
    const double m = (double)modulus, inverse = 1 / m, f = (double)factor;
    for (int64_t i = 0; i < count; i++) {
        const double product = (double)sums[i] * f;
        out[i] = (int8_t)(int32_t)(product - ROUND(product * inverse) * m);
    }
}

IN void pass(double (*terms)[BLOCK], int64_t count) {
    for (int64_t k = count - 2; k >= 0; k--)
        for (int i = 0; i < BLOCK; i++) {
            const double a = terms[k][i], b = terms[k + 1][i];
            const double s = a + b, c = s - a;
            terms[k][i] = s;
            terms[k + 1][i] = (a - (s - c)) + (b - c);
        }
}

/* The words of the numbers of BLOCK residues, the most significant first. */
IN void words_of(const int8_t *residues, int64_t plane, int64_t filled, int64_t many,
                 const double *weights, const double *shares, const double *whole, int64_t count,
                 double (*words)[BLOCK]) {
    double y[MOST_MODULI][BLOCK], turns[BLOCK] = {0};
    for (int64_t m = 0; m < many; m++) {
        int8_t bytes[BLOCK] = {0};
        memcpy(bytes, residues + m * plane, filled);
        for (int i = 0; i < BLOCK; i++) {
            y[m][i] = bytes[i];
            turns[i] = turns[i] + y[m][i] * shares[m];
        }
    }
    for (int i = 0; i < BLOCK; i++) turns[i] = ROUND(turns[i]);
    for (int64_t g = 0; g < count; g++)
        for (int v = 0; v < VECTORS; v += 4) {
            const V *turn = (const V *)(turns + v * LANES);
            V a = -turn[0] * whole[g], b = -turn[1] * whole[g];
            V c = -turn[2] * whole[g], d = -turn[3] * whole[g];
            for (int64_t m = 0; m < many; m++) {
                const V *from = (const V *)(y[m] + v * LANES);
                const double weight = weights[g * many + m];
                a += from[0] * weight, b += from[1] * weight;
                c += from[2] * weight, d += from[3] * weight;
            }
            V *to = (V *)(words[g] + v * LANES);
            to[0] = a, to[1] = b, to[2] = c, to[3] = d;
        }
}

/* out (nc, rows, columns): the numbers that the residues stand for, times
   2^(row + column exponent - shift), as expansions. */
void residues_decode(const int8_t *residues, int64_t many, int64_t rows, int64_t columns,
                     const int32_t *row_exponents, const int32_t *column_exponents, int64_t shift,
                     const double *weights, const double *shares, const double *whole,
                     int64_t count, int64_t nc, int64_t passes, REAL *out) {
    const int64_t plane = rows * columns;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t begin = 0; begin < columns; begin += BLOCK) {
            double words[MOST_WORDS][BLOCK], up[2][BLOCK], down[2][BLOCK];
            REAL parts[MOST_WORDS][BLOCK];
            const int64_t at = row * columns + begin;
            const int64_t filled = columns - begin < BLOCK ? columns - begin : BLOCK;
            words_of(residues + at, plane, filled, many, weights, shares, whole, count, words);
            for (int64_t g = count - 1; g > 0; g--)
                for (int i = 0; i < BLOCK; i++) {
                    const double base = (double)((int64_t)1 << WORD);
                    const double carry = ROUND(words[g][i] * (1 / base));
                    words[g][i] = words[g][i] - carry * base;
                    words[g - 1][i] = words[g - 1][i] + carry;
                }
            for (int64_t g = 0; g < count; g++) {
                const double unit = power_of_two((count - 1 - g) * WORD);
                for (int i = 0; i < BLOCK; i++) words[g][i] = words[g][i] * unit;
            }
            for (int i = 0; i < BLOCK; i++) {
                const int64_t e = i < filled ? column_exponents[begin + i] : 0;
                const int64_t power = clamp(row_exponents[row] + e - shift, -2044, 2044);
                const int64_t half = power >> 1;
                up[0][i] = power_of_two(half), up[1][i] = power_of_two(power - half);
                down[0][i] = power_of_two(-half), down[1][i] = power_of_two(half - power);
            }
            for (int64_t p = 1; p < passes; p++) pass(words, count);
            for (int64_t c = 0; c < nc; c++) {
                pass(words, count);
                for (int i = 0; i < BLOCK; i++) {
                    const REAL kept = (REAL)(words[0][i] * up[0][i] * up[1][i]);
                    words[0][i] = words[0][i] - (double)kept * down[1][i] * down[0][i];
                    parts[c][i] = kept;
                }
            }
            /* Ties may leave two components out of order. Infinities have no others. */
            for (int64_t c = 1; c < nc; c++)
                for (int i = 0; i < BLOCK; i++)
                    parts[c][i] = parts[0][i] - parts[0][i] == 0 ? parts[c][i] : 0;
            for (int64_t c = 0; c + 1 < nc; c++)
                for (int i = 0; i < BLOCK; i++) {
                    const REAL a = parts[c][i], b = parts[c + 1][i], s = a + b;
                    parts[c][i] = s;
                    parts[c + 1][i] = b - (s - a);
                }
            for (int64_t c = 0; c < nc; c++)
                for (int64_t i = 0; i < filled; i++) {
                    const REAL lead = parts[0][i];
                    const int finite = lead - lead == 0;
                    out[c * plane + at + i] = (finite || c == 0 ? parts[c][i] : 0) + (REAL)0;
                }
        }
}
