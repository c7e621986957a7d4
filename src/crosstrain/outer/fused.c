/* The merge of one chunk in one pass: what weighted_merge.py does in numpy, to the bit.
 *
 * Every element sees the same correctly rounded float32 operations in the same order as there, so this file has to be compiled
 * without contraction to fused multiply-adds and without -ffast-math (hatch_build.py). The arrays may lie anywhere, because a
 * tensor is where the header of its file puts it. New values may replace the old ones, element by element, and nothing else may
 * overlap: that is what ivdep promises, so that the compiler can use vector instructions.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__)
#error "compile without -ffast-math: the result would differ between machines"
#endif

enum { BLOCK = 256 };                                   /* encoding.py: BLOCK */
enum { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2, INT4 = 3 }; /* fused.py: _KINDS */

/* Wider vectors where the processor has them, chosen when the library is loaded; each lane rounds the same. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
#define INLINED static inline __attribute__((always_inline))

typedef float f32 __attribute__((aligned(1), may_alias));
typedef uint16_t u16 __attribute__((aligned(1), may_alias));

struct term {
    const void *values; /* n elements, or whole blocks of a quantised delta */
    const void *scales; /* one bfloat16 a block; null where there are none */
    float weight;
    int32_t kind;
};

INLINED float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINED float widen(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

/* To nearest, ties to even; a NaN becomes the quiet one of its sign. */
INLINED uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = ((bits >> 16) & 0x8000u) | 0x7FC0u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

/* sum[0 .. count) += weight d, or = weight d for the first term, of block `block`. */
#define FOLD(index, value)                                     \
    do {                                                       \
        float weighted = (value) * weight;                     \
        sum[index] = first ? weighted : sum[index] + weighted; \
    } while (0)

INLINED void fold(const struct term *term, int first, size_t block, size_t count, float *restrict sum)
{
    const char *values = term->values;
    const float weight = term->weight;
    if (term->kind == FLOAT32) {
        const f32 *wide = (const f32 *)(values + block * BLOCK * 4);
        for (size_t i = 0; i < count; i++)
            FOLD(i, wide[i]);
    } else if (term->kind == BFLOAT16) {
        const u16 *narrowed = (const u16 *)(values + block * BLOCK * 2);
        for (size_t i = 0; i < count; i++)
            FOLD(i, widen(narrowed[i]));
    } else { /* whole blocks, whatever count is */
        const float scale = widen(((const u16 *)term->scales)[block]);
        if (term->kind == INT8) {
            const int8_t *steps = (const int8_t *)values + block * BLOCK;
            for (size_t i = 0; i < BLOCK; i++)
                FOLD(i, (float)steps[i] * scale);
        } else {
            const int8_t *pairs = (const int8_t *)values + block * (BLOCK / 2);
            for (size_t i = 0; i < BLOCK / 2; i++) {
                FOLD(2 * i, (float)(((pairs[i] & 15) ^ 8) - 8) * scale);
                FOLD(2 * i + 1, (float)(pairs[i] >> 4) * scale);
            }
        }
    }
}

/* sum[0 .. count) = ((weight_0 d_0 + weight_1 d_1) + weight_2 d_2) + ... of one block. */
INLINED void add_up(const struct term *terms, size_t count_terms, size_t block, size_t count, float *restrict sum)
{
    fold(&terms[0], 1, block, count, sum);
    for (size_t t = 1; t < count_terms; t++)
        fold(&terms[t], 0, block, count, sum);
}

/* new_weights, new_momentum, wire = the outer step from weights and momentum (null: zero), over n elements. */
FOR_EACH_PROCESSOR
void crosstrain_merge(size_t n, const void *weights, const void *momentum, const struct term *terms, size_t count_terms,
                      float share, float eta, float beta, void *new_weights, void *new_momentum, void *wire)
{
    static const float zeros[BLOCK];
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        float step[BLOCK];
        size_t count = n - begin < BLOCK ? n - begin : BLOCK;
        const f32 *w = (const f32 *)weights + begin;
        const f32 *m = momentum ? (const f32 *)momentum + begin : zeros;
        f32 *new_w = (f32 *)new_weights + begin, *new_m = (f32 *)new_momentum + begin;
        u16 *narrowed = (u16 *)wire + begin;
        add_up(terms, count_terms, begin / BLOCK, count, step);
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++) {
            float scaled = step[i] * share * eta;
            float grown = m[i] * beta + scaled;
            float moved = w[i] + (grown * beta + scaled);
            new_m[i] = grown;
            new_w[i] = moved;
            narrowed[i] = narrow(moved);
        }
    }
}

/* The sum of squares of n elements in double precision, and the bits of the largest magnitude: above 0x7F7FFFFF one of them is
 * infinite or not a number. Of a quantised term n is that of whole blocks. */
FOR_EACH_PROCESSOR
void crosstrain_look(size_t n, const struct term *term, double *squares, uint32_t *largest)
{
    enum { LANES = 8 }; /* sums in a fixed order, the same on every processor */
    double total = 0;
    uint32_t top = 0;
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        float values[BLOCK];
        double sums[LANES] = {0};
        size_t count = n - begin < BLOCK ? n - begin : BLOCK;
        for (size_t i = count; i < BLOCK; i++)
            values[i] = 0;
        fold(term, 1, begin / BLOCK, count, values);
        for (size_t i = 0; i < BLOCK; i += LANES)
            for (size_t lane = 0; lane < LANES; lane++)
                sums[lane] += (double)values[i + lane] * (double)values[i + lane];
        for (size_t i = 0; i < BLOCK; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            bits &= 0x7FFFFFFFu;
            top = bits > top ? bits : top;
        }
        total += ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    *squares = total;
    *largest = top;
}
