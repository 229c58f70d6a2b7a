/* Loops around SoftPosit's operations, for trainwright bench posit --peer softposit=FOLDER. Of its types
   posit_2_t is measured: es = 2, WIDTH bits at the top of 32. SoftPosit itself is not part of this
   project; the folder is that of its sources. */

#include <stdint.h>

#include "softposit.h"

static inline posit_2_t of(uint32_t word) {
    return (posit_2_t){.v = word};
}

void peer_add(const uint32_t *a, const uint32_t *b, uint32_t *out, int64_t count, int64_t width) {
    for (int64_t i = 0; i < count; i++) out[i] = pX2_add(of(a[i]), of(b[i]), (int)width).v;
}

void peer_mul(const uint32_t *a, const uint32_t *b, uint32_t *out, int64_t count, int64_t width) {
    for (int64_t i = 0; i < count; i++) out[i] = pX2_mul(of(a[i]), of(b[i]), (int)width).v;
}

/* c (size, size) = a b, in order of k, every operation rounded */
void peer_sequential(const uint32_t *a, const uint32_t *b, uint32_t *c, int64_t size, int64_t width) {
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++) {
            posit_2_t sum = of(0);
            for (int64_t k = 0; k < size; k++) {
                const posit_2_t term = pX2_mul(of(a[i * size + k]), of(b[k * size + j]), (int)width);
                sum = pX2_add(sum, term, (int)width);
            }
            c[i * size + j] = sum.v;
        }
}

void peer_quire(const uint32_t *a, const uint32_t *b, uint32_t *c, int64_t size, int64_t width) {
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++) {
            quire_2_t sum = qX2Clr();
            for (int64_t k = 0; k < size; k++)
                sum = qX2_fdp_add(sum, of(a[i * size + k]), of(b[k * size + j]));
            c[i * size + j] = qX2_to_pX2(sum, (int)width).v;
        }
}
