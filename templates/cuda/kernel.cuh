// What the text of every CUDA kernel stands on: vectors of a thread, loads and stores of each element type, functions of scalars
// and of vectors, joins over a team of threads. It includes nothing, so that NVRTC needs no folder of headers, and may come several
// times in one translation unit. host.h, which comes before it on a CPU, defines K_HOST.
#ifndef DSLC_KERNEL_CUH
#define DSLC_KERNEL_CUH
#ifdef __CUDACC__
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long uint64_t;
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000LL)
#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000LL)
#endif
#ifndef K_HOST
#define K_SHARED(T, NAME, COUNT) __shared__ alignas(16) T NAME[COUNT]
// told of every element that is read or written in memory: a CPU finds races by it
#define K_SEEN(POINTER, COUNT, WRITTEN)
#define K_UNROLL _Pragma("unroll")
#endif
#define K_ONE static __device__ __forceinline__
#define K_FN template <class T> K_ONE
#define K_VEC template <class T, int N> K_ONE
#define K_LANES K_UNROLL for (int i = 0; i < N; ++i)

struct k_f16 { uint16_t bits; };
struct k_bf16 { uint16_t bits; };
struct k_bool { uint8_t bits; };
// the elements that one thread works on; aligned as far as one instruction moves it
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) V { T lane[N]; };

// ---- types --------------------------------------------------------------------------------------------------------------
template <class T> struct k_of { static constexpr bool floating = false; typedef T wrapping; };
template <> struct k_of<float> { static constexpr bool floating = true; typedef float wrapping; };
template <> struct k_of<double> { static constexpr bool floating = true; typedef double wrapping; };
template <> struct k_of<int64_t> { static constexpr bool floating = false; typedef uint64_t wrapping; };
template <> struct k_of<int32_t> { static constexpr bool floating = false; typedef uint32_t wrapping; };
template <> struct k_of<int16_t> { static constexpr bool floating = false; typedef uint32_t wrapping; };
template <> struct k_of<int8_t> { static constexpr bool floating = false; typedef uint32_t wrapping; };
template <> struct k_of<uint16_t> { static constexpr bool floating = false; typedef uint32_t wrapping; };
template <> struct k_of<uint8_t> { static constexpr bool floating = false; typedef uint32_t wrapping; };
template <class T> constexpr bool k_signed = T(-1) < T(0);
// what an element is computed with, one alone and in a vector: there booleans are 0 and -1
template <class S> struct k_compute { typedef S one; typedef S type; };
template <> struct k_compute<k_f16> { typedef float one; typedef float type; };
template <> struct k_compute<k_bf16> { typedef float one; typedef float type; };
template <> struct k_compute<k_bool> { typedef bool one; typedef int32_t type; };
template <class S, int N> using C = V<typename k_compute<S>::type, N>;
template <class T> struct k_to_type { typedef T type; };
template <> struct k_to_type<k_bool> { typedef bool type; };

// ---- f16 and bf16 ---------------------------------------------------------------------------------------------------------
K_ONE float k_from_bits(uint32_t b) { return __uint_as_float(b); }
K_ONE uint32_t k_bits(float f) { return __float_as_uint(f); }
K_ONE float k_load_one(k_bf16 x) { return k_from_bits((uint32_t)x.bits << 16); }
K_ONE k_bf16 k_to_bf16(float x) {
  const uint32_t b = k_bits(x);
  return k_bf16{(uint16_t)(x != x ? (b >> 16) | 64 : (b + 0x7fff + ((b >> 16) & 1)) >> 16)};
}
K_ONE float k_load_one(k_f16 x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
#else
  const uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  const float scaled = k_from_bits(rest << 13) * 5.192296858534828e33f;  // 2^112 moves the exponent
  return k_from_bits((rest >= 0x7c00 ? (rest << 13) | 0x7f800000u : k_bits(scaled)) | sign);
#endif
}
K_ONE k_f16 k_to_f16(float x) {
#ifdef __CUDA_ARCH__
  k_f16 out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(x));
  return out;
#else
  const uint32_t b = k_bits(x), sign = (b >> 16) & 0x8000, a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return k_f16{(uint16_t)(sign | 0x7e00)};
  if (a >= 0x477ff000u) return k_f16{(uint16_t)(sign | 0x7c00)};
  if (a < 0x38800000u) return k_f16{(uint16_t)(sign | (k_bits(k_from_bits(a) + 0.5f) & 0x7fff))};
  return k_f16{(uint16_t)(sign | ((a - 0x38000000u + 0xfff + ((a >> 13) & 1)) >> 13))};
#endif
}
K_ONE bool k_load_one(k_bool x) { return x.bits != 0; }
K_FN T k_load_one(T x) { return x; }
K_ONE float k_round_f16(float x) { return k_load_one(k_to_f16(x)); }
K_ONE float k_round_bf16(float x) { return k_load_one(k_to_bf16(x)); }
template <class S> struct k_put { template <class T> K_ONE S of(T x) { return (S)x; } };
template <> struct k_put<k_f16> { static __device__ __forceinline__ k_f16 of(float x) { return k_to_f16(x); } };
template <> struct k_put<k_bf16> { static __device__ __forceinline__ k_bf16 of(float x) { return k_to_bf16(x); } };
template <> struct k_put<k_bool> { static __device__ __forceinline__ k_bool of(int32_t x) { return k_bool{(uint8_t)(x != 0)}; } };
// an element in a vector: booleans become 0 and -1
template <class S> struct k_get { K_ONE S of(S x) { return x; } };
template <> struct k_get<k_f16> { static __device__ __forceinline__ float of(k_f16 x) { return k_load_one(x); } };
template <> struct k_get<k_bf16> { static __device__ __forceinline__ float of(k_bf16 x) { return k_load_one(x); } };
template <> struct k_get<k_bool> { static __device__ __forceinline__ int32_t of(k_bool x) { return -(int32_t)(x.bits != 0); } };

// ---- lanes --------------------------------------------------------------------------------------------------------------
#define K_OPERATOR(OP) K_VEC V<T, N> operator OP(V<T, N> a, V<T, N> b) { K_LANES a.lane[i] = (T)(a.lane[i] OP b.lane[i]); return a; }
K_OPERATOR(+) K_OPERATOR(*) K_OPERATOR(/) K_OPERATOR(&) K_OPERATOR(|)
#undef K_OPERATOR
#define K_COMPARED(OP) K_VEC V<int32_t, N> operator OP(V<T, N> a, V<T, N> b) { \
  V<int32_t, N> out; K_LANES out.lane[i] = -(int32_t)(a.lane[i] OP b.lane[i]); return out; }
K_COMPARED(==) K_COMPARED(!=) K_COMPARED(<) K_COMPARED(<=) K_COMPARED(>) K_COMPARED(>=)
#undef K_COMPARED
K_VEC V<T, N> operator~(V<T, N> a) { K_LANES a.lane[i] = ~a.lane[i]; return a; }
#define k_test(a, OP, b) ((a) OP (b))
K_VEC V<T, N> k_all(T x) { V<T, N> v; K_LANES v.lane[i] = x; return v; }
K_VEC V<T, N> k_iota(int64_t start, int64_t step) { V<T, N> v; K_LANES v.lane[i] = (T)(start + i * step); return v; }
template <int N> K_ONE V<int32_t, N> k_first(int count) { V<int32_t, N> v; K_LANES v.lane[i] = -(int32_t)(i < count); return v; }
// start + lane * step >= 0
template <int N> K_ONE V<int32_t, N> k_from(int64_t start, int64_t step) {
  V<int32_t, N> v; K_LANES v.lane[i] = -(int32_t)(start + i * step >= 0); return v;
}
K_VEC V<T, N> k_select(V<int32_t, N> m, V<T, N> a, V<T, N> b) { K_LANES a.lane[i] = m.lane[i] ? a.lane[i] : b.lane[i]; return a; }
template <class T, int N, class S> K_ONE V<T, N> k_to(V<S, N> v) { V<T, N> out; K_LANES out.lane[i] = (T)v.lane[i]; return out; }
K_VEC V<T, N> k_count(V<int32_t, N> m) { V<T, N> out; K_LANES out.lane[i] = (T)(m.lane[i] & 1); return out; }
template <int N, class S> K_ONE V<int32_t, N> k_truth(V<S, N> v) {
  V<int32_t, N> out; K_LANES out.lane[i] = -(int32_t)(v.lane[i] != S(0)); return out;
}
template <class T, class S> struct k_one { K_ONE T to(S x) { return (T)x; } };
template <class S> struct k_one<k_bool, S> { K_ONE bool to(S x) { return x != 0; } };
template <class T, class S> K_ONE typename k_to_type<T>::type k_to_one(S x) { return k_one<T, S>::to(x); }

// ---- loads and stores -----------------------------------------------------------------------------------------------------
template <class R> K_ONE bool k_aligned(const void* p) { return ((uint64_t)p & (alignof(R) - 1)) == 0; }
template <class S, int N> K_ONE C<S, N> k_widen(V<S, N> raw) { C<S, N> out; K_LANES out.lane[i] = k_get<S>::of(raw.lane[i]); return out; }
template <class S> K_ONE typename k_compute<S>::one k_at(const S* p, int64_t at) { K_SEEN(p + at, 1, false); return k_load_one(p[at]); }
// What is loaded where a condition does not hold is not used, whoever writes there meanwhile: `k_load_safe`, `k_load_in` and `k_gather`
// of a total tell nobody.
template <class S> K_ONE typename k_compute<S>::one k_load_safe(const S* p, int64_t at, int64_t total) {
  return at >= 0 && at < total ? k_load_one(p[at]) : (typename k_compute<S>::one)0;
}
template <class S, int N> K_ONE C<S, N> k_load_any(const S* p) {
  V<S, N> raw;
  if (k_aligned<V<S, N>>(p)) raw = *(const V<S, N>*)p;
  else K_LANES raw.lane[i] = p[i];
  return k_widen<S, N>(raw);
}
template <class S, int N> K_ONE C<S, N> k_load(const S* p) { K_SEEN(p, N, false); return k_load_any<S, N>(p); }
// from where all vectors are aligned: a tile in shared memory
template <class S, int N> K_ONE C<S, N> k_take(const S* p) {
  K_SEEN(p, N, false);
  return k_widen<S, N>(*(const V<S, N>*)p);
}
template <class S, int N> K_ONE C<S, N> k_load_step(const S* p, int64_t step, int n) {
  C<S, N> out;
  K_LANES out.lane[i] = i < n ? k_get<S>::of(p[i * step]) : 0;
#ifdef K_HOST
  for (int i = 0; i < n; ++i) K_SEEN(p + i * step, 1, false);
#endif
  return out;
}
template <class S, int N> K_ONE C<S, N> k_load(const S* p, int n) { return k_load_step<S, N>(p, 1, n); }
// n elements from p[at], of those that are in p[0 .. total)
template <class S, int N> K_ONE C<S, N> k_load_in(const S* p, int64_t at, int64_t total, int n) {
  if (n == N && at >= 0 && at + N <= total) return k_load_any<S, N>(p + at);
  C<S, N> out;
  K_LANES {
    const bool inside = i < n && at + i >= 0 && at + i < total;
    out.lane[i] = inside ? k_get<S>::of(p[at + i]) : 0;
  }
  return out;
}
template <int N> K_ONE V<int64_t, N> k_within(V<int64_t, N> at, int64_t total) {
  K_LANES at.lane[i] = at.lane[i] < 0 ? 0 : at.lane[i] < total ? at.lane[i] : total - 1;
  return at;
}
template <class S, int N> K_ONE C<S, N> k_gather(const S* p, V<int64_t, N> at, int n, int64_t total) {
  C<S, N> out;
  K_LANES out.lane[i] = i < n && total > 0 ? k_get<S>::of(p[at.lane[i]]) : 0;
  return out;
}
template <class S, int N> K_ONE C<S, N> k_gather(const S* p, V<int64_t, N> at, int n) {
#ifdef K_HOST
  for (int i = 0; i < n; ++i) K_SEEN(p + at.lane[i], 1, false);
#endif
  return k_gather<S, N>(p, at, n, 1);
}
template <class S, class T> K_ONE void k_store_one(S* p, T x) { K_SEEN(p, 1, true); *p = k_put<S>::of(x); }
// what all threads of a team have, written by its first
template <class S, class T> K_ONE void k_store_once(int rank, S* p, T x) { if (rank == 0) k_store_one(p, x); }
template <class S, int N> K_ONE void k_store_step(S* p, C<S, N> v, int64_t step, int n) {
  K_LANES if (i < n) { K_SEEN(p + i * step, 1, true); p[i * step] = k_put<S>::of(v.lane[i]); }
}
template <class S, int N> K_ONE void k_store(S* p, C<S, N> v, int n) { k_store_step<S, N>(p, v, 1, n); }
template <class S, int N> K_ONE void k_store(S* p, C<S, N> v) {
  K_SEEN(p, N, true);
  V<S, N> raw;
  K_LANES raw.lane[i] = k_put<S>::of(v.lane[i]);
  if (k_aligned<V<S, N>>(p)) *(V<S, N>*)p = raw;
  else K_LANES p[i] = raw.lane[i];
}
template <class S, int N> K_ONE void k_scatter(S* p, C<S, N> v, V<int64_t, N> at, int n) {
  K_LANES if (i < n) { K_SEEN(p + at.lane[i], 1, true); p[at.lane[i]] = k_put<S>::of(v.lane[i]); }
}

// ---- functions ------------------------------------------------------------------------------------------------------------
#define K_EACH1(NAME) K_VEC V<T, N> NAME(V<T, N> a) { K_LANES a.lane[i] = NAME(a.lane[i]); return a; }
#define K_EACH2(NAME) K_VEC V<T, N> NAME(V<T, N> a, V<T, N> b) { K_LANES a.lane[i] = NAME(a.lane[i], b.lane[i]); return a; }
// integers are modulo 2^bits
K_FN T k_add(T a, T b) { typedef typename k_of<T>::wrapping U; return (T)((U)a + (U)b); }
K_FN T k_mul(T a, T b) { typedef typename k_of<T>::wrapping U; return (T)((U)a * (U)b); }
K_EACH2(k_add) K_EACH2(k_mul)
K_FN T k_div_trunc(T a, T b) {  // 0 where b is 0: such a quotient has no value
  if (b == 0) return 0;
  if constexpr (k_signed<T>) if (b == T(-1)) return (T)(0 - (uint64_t)a);
  if constexpr (sizeof(T) == 8) if ((((uint64_t)a | (uint64_t)b) >> 32) == 0) return (T)((uint32_t)a / (uint32_t)b);
  return (T)(a / b);
}
K_ONE float k_fmod(float a, float b) { return fmodf(a, b); }
K_ONE double k_fmod(double a, double b) { return fmod(a, b); }
K_ONE float k_floor(float x) { return floorf(x); }
K_ONE double k_floor(double x) { return floor(x); }
K_FN T k_floormod(T a, T b) {  // the sign of the divisor, as Python
  if constexpr (k_of<T>::floating) {
    T r = k_fmod(a, b);
    if (r != 0 && ((r < 0) != (b < 0))) r += b;
    return r;
  } else {
    if (b == 0) return 0;
    const T r = (T)((uint64_t)a - (uint64_t)k_div_trunc(a, b) * (uint64_t)b);
    return r != 0 && ((r < 0) != (b < 0)) ? (T)(r + b) : r;
  }
}
K_FN T k_floordiv(T a, T b) {
  if constexpr (k_of<T>::floating) {
    if (b == 0) return a / b;
    const T m = k_floormod(a, b), q = (a - m) / b, f = k_floor(q);
    return q - f > T(0.5) ? f + 1 : f;
  } else {
    if (b == 0) return 0;
    const T q = k_div_trunc(a, b);
    const T r = (T)((uint64_t)a - (uint64_t)q * (uint64_t)b);
    return r != 0 && ((r < 0) != (b < 0)) ? (T)(q - 1) : q;
  }
}
K_FN T k_truncdiv(T a, T b) { return k_div_trunc(a, b); }
K_FN T k_ceildiv(T a, T b) { return b == 0 ? T(0) : (T)(k_floordiv(a, b) + (k_floormod(a, b) != 0 ? 1 : 0)); }
K_EACH2(k_floordiv) K_EACH2(k_floormod) K_EACH2(k_truncdiv) K_EACH2(k_ceildiv)
// the next place after `at` where a condition changes, or `end`
K_ONE int64_t k_cut(int64_t at, int64_t end, int64_t change) { return change > at && change < end ? change : end; }
K_ONE int64_t k_min64(int64_t a, int64_t b) { return a < b ? a : b; }
// the last of several positions that one number stands for; the others stay in it
K_ONE int64_t k_next(int64_t& rest, int64_t extent) {
  const int64_t above = k_div_trunc(rest, extent), out = rest - above * extent;
  rest = above;
  return out;
}
K_ONE int64_t k_int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t out = 1, b = (uint64_t)base;
  for (; exponent; exponent >>= 1, b *= b) if (exponent & 1) out *= b;
  return (int64_t)out;
}
#define K_MATH(NAME, SINGLE, DOUBLE) \
  K_ONE float k_##NAME(float x) { return SINGLE(x); } \
  K_ONE double k_##NAME(double x) { return DOUBLE(x); } \
  K_EACH1(k_##NAME)
K_MATH(exp, expf, exp) K_MATH(log, logf, log) K_MATH(log1p, log1pf, log1p) K_MATH(sqrt, sqrtf, sqrt) K_MATH(tanh, tanhf, tanh)
K_MATH(erf, erff, erf) K_MATH(sin, sinf, sin) K_MATH(cos, cosf, cos) K_MATH(tan, tanf, tan) K_MATH(asin, asinf, asin)
K_MATH(acos, acosf, acos) K_MATH(atan, atanf, atan) K_MATH(sinh, sinhf, sinh) K_MATH(cosh, coshf, cosh)
K_MATH(asinh, asinhf, asinh) K_MATH(acosh, acoshf, acosh) K_MATH(atanh, atanhf, atanh) K_MATH(ceil, ceilf, ceil)
K_MATH(trunc, truncf, trunc) K_MATH(round, rintf, rint)
K_ONE float k_rsqrt(float x) { return 1.0f / sqrtf(x); }
K_ONE double k_rsqrt(double x) { return 1.0 / sqrt(x); }
K_EACH1(k_rsqrt) K_EACH1(k_floor) K_EACH1(k_round_f16) K_EACH1(k_round_bf16)
#undef K_MATH
K_ONE float k_pow(float a, float b) { return powf(a, b); }
K_ONE double k_pow(double a, double b) { return pow(a, b); }
K_FN T k_pow(T a, T b) { return (T)k_int_power((int64_t)a, (int64_t)b); }
K_EACH2(k_pow)
// NaN where either is, as ONNX Runtime and numpy
K_FN T k_max(T a, T b) { if constexpr (k_of<T>::floating) { if (a != a) return a; } return a > b ? a : b; }
K_FN T k_min(T a, T b) { if constexpr (k_of<T>::floating) { if (a != a) return a; } return a < b ? a : b; }
K_EACH2(k_max) K_EACH2(k_min)
K_ONE float k_abs(float x) { return fabsf(x); }
K_ONE double k_abs(double x) { return fabs(x); }
K_FN T k_abs(T x) { return x < 0 ? (T)(0 - (uint64_t)x) : x; }
K_FN T k_sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x != x ? x : T(0); }
K_EACH1(k_abs) K_EACH1(k_sign)
K_FN bool k_isnan(T x) { return x != x; }
K_FN bool k_isinf(T x) { if constexpr (k_of<T>::floating) return k_abs(x) == (T)__builtin_inf(); else return false; }
K_VEC V<int32_t, N> k_isnan(V<T, N> v) { V<int32_t, N> out; K_LANES out.lane[i] = -(int32_t)k_isnan(v.lane[i]); return out; }
K_VEC V<int32_t, N> k_isinf(V<T, N> v) { V<int32_t, N> out; K_LANES out.lane[i] = -(int32_t)k_isinf(v.lane[i]); return out; }
#undef K_EACH1
#undef K_EACH2

// ---- teams: TEAM threads that work on one row: one, a warp, or a block ---------------------------------------------------------
#define K_JOIN(NAME, JOINED) struct k_##NAME { template <class T> K_ONE T of(T a, T b) { return JOINED; } };
K_JOIN(join_sum, k_add(a, b)) K_JOIN(join_prod, k_mul(a, b)) K_JOIN(join_max, k_max(a, b)) K_JOIN(join_min, k_min(a, b))
K_JOIN(join_any, (T)(a | b)) K_JOIN(join_all, (T)(a & b))
#undef K_JOIN
K_ONE float k_shuffle(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
K_ONE double k_shuffle(double v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
K_ONE int64_t k_shuffle(int64_t v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
K_ONE uint64_t k_shuffle(uint64_t v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
K_FN T k_shuffle(T v, int mask) { return (T)__shfl_xor_sync(0xffffffffu, (int32_t)v, mask); }
// all that the team wrote before is seen by it after
template <int TEAM> K_ONE void k_meet() {
  if constexpr (TEAM > 32) __syncthreads();
  else if constexpr (TEAM > 1) __syncwarp();
}
template <class J, int TEAM, class T> K_ONE T k_joined(T v) {
  K_UNROLL for (int mask = (TEAM < 32 ? TEAM : 32) / 2; mask > 0; mask /= 2) v = J::of(v, k_shuffle(v, mask));
  if constexpr (TEAM > 32) {
    K_SHARED(T, room, TEAM / 32);
    if (threadIdx.x % 32 == 0) k_store_one(&room[threadIdx.x / 32], v);
    __syncthreads();
    v = k_at(room, 0);
    for (int warp = 1; warp < TEAM / 32; ++warp) v = J::of(v, k_at(room, warp));
    __syncthreads();
  }
  return v;
}
// ---- tensor cores: what a warp multiplies and adds at once, 16 x 8 results of 32 bytes along the sum ---------------------------------
template <int N> struct k_piece { uint32_t part[N]; };
// neighbours along the sum that one register has, read as one; a thread is one of eight groups of four
template <class S> K_ONE uint32_t k_part(const S* p) { K_SEEN(p, 4 / (int)sizeof(S), false); return *(const uint32_t*)p; }
// 16 rows of the left operand, `apart` elements from one to the next
template <int APART, class S> K_ONE k_piece<4> k_a_piece(const S* p) {
  const int lane = threadIdx.x % 32, pair = 4 / sizeof(S);
  p += lane / 4 * APART + lane % 4 * pair;
  return k_piece<4>{{k_part(p), k_part(p + 8 * APART), k_part(p + 4 * pair), k_part(p + 8 * APART + 4 * pair)}};
}
// 8 columns of the right one
template <int APART, class S> K_ONE k_piece<2> k_b_piece(const S* p) {
  const int lane = threadIdx.x % 32, pair = 4 / sizeof(S);
  p += lane / 4 * APART + lane % 4 * pair;
  return k_piece<2>{{k_part(p), k_part(p + 4 * pair)}};
}
#ifdef K_HOST
template <class S> K_ONE float k_part_of(uint32_t part, int which) {
  S each[4 / sizeof(S)];
  k_host::copy(each, &part, 4);
  return (float)k_load_one(each[which]);
}
template <> inline float k_part_of<float>(uint32_t part, int) { return k_from_bits((part + 0x1000) & 0xffffe000u); }
template <class S> K_ONE void k_units(V<float, 2>& upper, V<float, 2>& lower, k_piece<4> a, k_piece<2> b) {
  const auto as = k_host::gathered(0, a);
  const auto bs = k_host::gathered(1, b);
  const int lane = threadIdx.x % 32, pair = 4 / sizeof(S);
  for (int k = 0; k < 8 * pair; ++k) {
    // the register and the thread of a group that have this step of the sum
    const int half = k / (4 * pair), owner = k / pair % 4;
    for (int i = 0; i < 2; ++i) {
      const float y = k_part_of<S>(bs[(lane % 4 * 2 + i) * 4 + owner].part[half], k % pair);
      upper.lane[i] += k_part_of<S>(as[lane / 4 * 4 + owner].part[2 * half], k % pair) * y;
      lower.lane[i] += k_part_of<S>(as[lane / 4 * 4 + owner].part[2 * half + 1], k % pair) * y;
    }
  }
  k_host::met();
}
#else
#define K_UNITS(S, SHAPE, TYPE) \
  template <> __device__ __forceinline__ void k_units<S>(V<float, 2>& c, V<float, 2>& d, k_piece<4> a, k_piece<2> b) { \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(c.lane[0]), "+f"(c.lane[1]), "+f"(d.lane[0]), "+f"(d.lane[1]) \
                 : "r"(a.part[0]), "r"(a.part[1]), "r"(a.part[2]), "r"(a.part[3]), "r"(b.part[0]), "r"(b.part[1])); \
  }
K_ONE uint32_t k_tf32(uint32_t part) {
  uint32_t out;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(k_from_bits(part)));
  return out;
}
template <class S> __device__ __forceinline__ void k_units(V<float, 2>& c, V<float, 2>& d, k_piece<4> a, k_piece<2> b);
K_UNITS(k_f16, "m16n8k16", "f16") K_UNITS(k_bf16, "m16n8k16", "bf16")
#undef K_UNITS
template <> __device__ __forceinline__ void k_units<float>(V<float, 2>& c, V<float, 2>& d, k_piece<4> a, k_piece<2> b) {
  K_UNROLL for (int i = 0; i < 4; ++i) a.part[i] = k_tf32(a.part[i]);
  K_UNROLL for (int i = 0; i < 2; ++i) b.part[i] = k_tf32(b.part[i]);
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c.lane[0]), "+f"(c.lane[1]), "+f"(d.lane[0]), "+f"(d.lane[1])
               : "r"(a.part[0]), "r"(a.part[1]), "r"(a.part[2]), "r"(a.part[3]), "r"(b.part[0]), "r"(b.part[1]));
}
#endif
// the lanes of a thread
template <class J, int N, class T> K_ONE T k_lanes(V<T, N> v) {
  T out = v.lane[0];
  K_UNROLL for (int i = 1; i < N; ++i) out = J::of(out, v.lane[i]);
  return out;
}
#endif
