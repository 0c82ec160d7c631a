// What the text of every kernel stands on: vectors of GCC and clang, loads and stores of each element type, functions of scalars
// and of vectors. It includes nothing but <stdint.h>'s names, and may come several times in one translation unit.
#ifndef DSLC_KERNEL_H
#define DSLC_KERNEL_H
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
#define K_FN template <class T> static inline __attribute__((always_inline, unused))
#define K_ONE static inline __attribute__((always_inline, unused))

#define K_METHOD inline __attribute__((always_inline, unused))
#include "kernel_vector.h"
struct k_f16 { uint16_t bits; };
struct k_bf16 { uint16_t bits; };
struct k_bool { uint8_t bits; };

// ---- lanes --------------------------------------------------------------------------------------------------------------
// x - 0 is x, whatever x is, and one instruction; a loop over lanes is not always one
template <class T, int N> K_ONE V<T, N> k_all(T x) { return x - V<T, N>{}; }
template <int N> K_ONE V<int32_t, N> k_numbers() {
  if constexpr (k_wide<V<int32_t, N>>) return V<int32_t, N>(k_numbers<N / 2>(), k_numbers<N / 2>() + N / 2);
  else { V<int32_t, N> v; for (int i = 0; i < N; ++i) v[i] = i; return v; }
}
template <class T, int N> K_ONE V<T, N> k_iota(int64_t start, int64_t step) {
  return (T)start + k_times(k_as<T, N>(k_numbers<N>()), V<T, N>{} + (T)step);
}
template <int N> K_ONE V<int32_t, N> k_first(int count) { return k_numbers<N>() < count; }
// start + lane * step >= 0
template <int N> K_ONE V<int32_t, N> k_from(int64_t start, int64_t step) {
  if (step == 1) {
    const int64_t first = start >= 0 ? 0 : -start;
    return k_numbers<N>() >= (int32_t)(first > N ? N : first);
  }
  if (step == -1) {
    const int64_t last = start < 0 ? -1 : start;
    return k_numbers<N>() <= (int32_t)(last > N ? N : last);
  }
  return k_as<int32_t, N>(k_iota<int64_t, N>(start, step) >= 0);
}
K_FN k_mask<T> k_test_as(T wide) { return k_as<int32_t, k_width<T>>(wide); }
#define k_test(a, OP, b) k_test_as(k_more(a) OP k_more(b))
template <class T> K_ONE T k_select(k_mask<T> m, T a, T b) {
  return k_pick(k_as<k_element<k_truths<T>>, k_width<T>>(m), a, b);
}
template <bool is_signed> struct k_two { typedef int16_t type; };
template <> struct k_two<false> { typedef uint16_t type; };
// one byte becomes four by way of two, and a number one or two bytes by way of four: compilers have no vectors for one step
template <class T, int N, class S> K_ONE V<T, N> k_to(S v) {
  typedef k_element<S> E;
  constexpr int from = sizeof(E), to = sizeof(T);
  if constexpr (!k_floating<S> && from == 1 && to > 2) {
    return k_to<T, N>(k_as<typename k_two<k_signed<S>>::type, N>(v));
  }
  else if constexpr (k_floating<S> != k_of<T>::floating && (k_floating<S> ? to : from) < 4)
    return k_as<T, N>(k_as<int32_t, N>(v));
  else return k_as<T, N>(v);
}
template <class T, int N> K_ONE V<T, N> k_count(V<int32_t, N> m) { return k_as<T, N>(m & 1); }
template <int N, class S> K_ONE V<int32_t, N> k_truth(S v) { return k_test_as(k_more(v) != 0); }
template <class T> struct k_to_type { typedef T type; };
template <> struct k_to_type<k_bool> { typedef bool type; };
template <class T, class S> K_ONE typename k_to_type<T>::type k_to_one(S x) {
  if constexpr (__is_same(T, k_bool)) return x != 0;
  else return (T)x;
}

// ---- f16 and bf16 ---------------------------------------------------------------------------------------------------------
template <class B> K_ONE B k_round_even(B bits) { return bits + 0x7fff + ((bits >> 16) & 1); }
K_ONE float k_from_bits(uint32_t b) { float f; __builtin_memcpy(&f, &b, 4); return f; }
K_ONE uint32_t k_bits(float f) { uint32_t b; __builtin_memcpy(&b, &f, 4); return b; }
K_ONE float k_load_one(k_bf16 x) { return k_from_bits((uint32_t)x.bits << 16); }
K_ONE k_bf16 k_to_bf16(float x) {
  const uint32_t b = k_bits(x);
  return k_bf16{(uint16_t)(x != x ? (b >> 16) | 64 : k_round_even(b) >> 16)};
}
K_ONE float k_load_one(k_f16 x) {
  const uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  // 2^112 moves the exponent; infinities and NaN keep theirs at the top
  const float scaled = k_from_bits(rest << 13) * 5.192296858534828e33f;
  return k_from_bits((rest >= 0x7c00 ? (rest << 13) | 0x7f800000u : k_bits(scaled)) | sign);
}
K_ONE k_f16 k_to_f16(float x) {
  const uint32_t b = k_bits(x), sign = (b >> 16) & 0x8000, a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return k_f16{(uint16_t)(sign | 0x7e00)};
  if (a >= 0x477ff000u) return k_f16{(uint16_t)(sign | 0x7c00)};
  if (a < 0x38800000u) return k_f16{(uint16_t)(sign | (k_bits(k_from_bits(a) + 0.5f) & 0x7fff))};
  return k_f16{(uint16_t)(sign | ((a - 0x38000000u + 0xfff + ((a >> 13) & 1)) >> 13))};
}
K_ONE float k_round_f16(float x) { return k_load_one(k_to_f16(x)); }
K_ONE float k_round_bf16(float x) { return k_load_one(k_to_bf16(x)); }

// ---- loads and stores -----------------------------------------------------------------------------------------------------
K_ONE bool k_load_one(k_bool x) { return x.bits != 0; }
template <class S> K_ONE S k_load_one(S x) { return x; }
template <class S> struct k_compute { typedef S type; };
template <> struct k_compute<k_f16> { typedef float type; };
template <> struct k_compute<k_bf16> { typedef float type; };
template <> struct k_compute<k_bool> { typedef int32_t type; };
template <class S, int N> using C = V<typename k_compute<S>::type, N>;
template <class S, int N> struct k_raw { typedef V<S, N> type; };
template <int N> struct k_raw<k_f16, N> { typedef V<uint16_t, N> type; };
template <int N> struct k_raw<k_bf16, N> { typedef V<uint16_t, N> type; };
template <int N> struct k_raw<k_bool, N> { typedef V<uint8_t, N> type; };

template <class S, int N> K_ONE C<S, N> k_widen(typename k_raw<S, N>::type raw) {
  if constexpr (__is_same(S, k_bf16)) return (C<S, N>)(k_as<uint32_t, N>(raw) << 16);
  else if constexpr (__is_same(S, k_f16)) {
    if constexpr (k_wide<C<S, N>>) return C<S, N>(k_widen<S, N / 2>(k_half_of<false>(raw)), k_widen<S, N / 2>(k_half_of<true>(raw)));
    else {
#ifdef __AVX512F__
      if constexpr (N == 16)
        return (V<float, N>)__builtin_ia32_vcvtph2ps512_mask((V<int16_t, 16>)raw, V<float, 16>{}, (unsigned short)-1, 4);
#endif
#ifdef __F16C__
      if constexpr (N == 8) return (V<float, N>)__builtin_ia32_vcvtph2ps256((V<int16_t, 8>)raw);
      if constexpr (N == 4) return (V<float, N>)__builtin_ia32_vcvtph2ps((V<int16_t, 8>)k_joined<uint16_t, 8>(raw, raw));
#endif
#ifdef __aarch64__
      if constexpr (N == 4) { V<float, N> out; __asm__("fcvtl %0.4s, %1.4h" : "=w"(out) : "w"(raw)); return out; }
#endif
      typedef V<uint32_t, N> U;
      const U x = k_as<uint32_t, N>(raw), rest = x & 0x7fff;
      const U scaled = (U)((V<float, N>)(rest << 13) * 5.192296858534828e33f);
      return (V<float, N>)((rest >= 0x7c00 ? (rest << 13) | 0x7f800000u : scaled) | ((x & 0x8000) << 16));
    }
  }
  else if constexpr (__is_same(S, k_bool)) return k_as<int32_t, N>(k_more(raw) != 0);
  else return raw;
}
template <class S, int N> K_ONE typename k_raw<S, N>::type k_narrow(C<S, N> v) {
  if constexpr (__is_same(S, k_bf16)) {
    typedef V<uint32_t, N> U;
    const U b = (U)v;
    return k_as<uint16_t, N>(k_pick(v != v, (b >> 16) | 64u, (b + 0x7fff + ((b >> 16) & 1)) >> 16));
  }
  else if constexpr (__is_same(S, k_f16)) {
    if constexpr (k_wide<C<S, N>>) return k_joined<uint16_t, N>(k_narrow<S, N / 2>(v.low), k_narrow<S, N / 2>(v.high));
    else {
#ifdef __AVX512F__
      if constexpr (N == 16)
        return (V<uint16_t, N>)__builtin_ia32_vcvtps2ph512_mask((V<float, 16>)v, 0, V<int16_t, 16>{}, (unsigned short)-1);
#endif
#ifdef __F16C__
      if constexpr (N == 8) return (V<uint16_t, N>)__builtin_ia32_vcvtps2ph256((V<float, 8>)v, 0);
      if constexpr (N == 4) return k_half_of<false>((V<uint16_t, 8>)__builtin_ia32_vcvtps2ph((V<float, 4>)v, 0));
#endif
#ifdef __aarch64__
      if constexpr (N == 4) { V<uint16_t, N> out; __asm__("fcvtn %0.4h, %1.4s" : "=w"(out) : "w"(v)); return out; }
#endif
      typedef V<uint32_t, N> U;
      const U b = (U)v, sign = (b >> 16) & 0x8000, a = b & 0x7fffffffu;
      const U small = (U)((V<float, N>)a + 0.5f) & 0x7fff;
      const U usual = (a - 0x38000000u + 0xfff + ((a >> 13) & 1)) >> 13;
      const U big = a > 0x7f800000u ? (U{} + 0x7e00u) : (U{} + 0x7c00u);
      return k_as<uint16_t, N>(sign | (a >= 0x477ff000u ? big : a < 0x38800000u ? small : usual));
    }
  }
  else if constexpr (__is_same(S, k_bool)) return k_as<uint8_t, N>(v & 1);
  else return v;
}

K_FN T k_round_f16(T v) { return k_widen<k_f16, k_width<T>>(k_narrow<k_f16, k_width<T>>(v)); }
K_FN T k_round_bf16(T v) { return k_widen<k_bf16, k_width<T>>(k_narrow<k_bf16, k_width<T>>(v)); }

// the first n elements of a vector, the others 0; and the other way round
#if K_BYTES == 64 && !defined(__clang__)
#define K_MASKED(BITS, N, BYTES, E, MASK, NAME) \
  if constexpr (sizeof(R) == N * BYTES && sizeof(k_element<R>) == BYTES) { \
    const MASK some = (MASK)((1u << n) - 1); \
    NAME(BITS, E, MASK) \
  } else
#define K_SOME_OF(BITS, E, MASK) return (R)__builtin_ia32_loaddqu##BITS##_mask((const E*)p, V<E, k_width<R>>{}, some);
#define K_PUT_OF(BITS, E, MASK) __builtin_ia32_storedqu##BITS##_mask((E*)p, (V<E, k_width<R>>)raw, some);
#define K_EACH(NAME) \
  K_MASKED(qi128, 16, 1, char, unsigned short, NAME) K_MASKED(hi256, 16, 2, short, unsigned short, NAME) \
  K_MASKED(si512, 16, 4, int, unsigned short, NAME) K_MASKED(di512, 8, 8, long long, unsigned char, NAME)
#else
#define K_EACH(NAME)
#endif
#ifdef __AVX2__
#define K_MASKED2(BITS, BYTES, E, NAME) \
  if constexpr (sizeof(R) == BITS && sizeof(k_element<R>) == BYTES) { \
    typedef V<E, BITS / BYTES> W; \
    const W some = (W)k_as<typename k_int<BYTES>::type, BITS / BYTES>(k_numbers<BITS / BYTES>() < n); \
    NAME \
  } else
#define K_EACH2(NAME32, NAME16, LONG32, LONG16) \
  K_MASKED2(32, 4, int, NAME32) K_MASKED2(16, 4, int, NAME16) K_MASKED2(32, 8, long long, LONG32) K_MASKED2(16, 8, long long, LONG16)
#else
#define K_EACH2(NAME32, NAME16, LONG32, LONG16)
#endif
// fewer bytes than 2 * most, by powers of two down to the size of an element
template <int most, int least> K_ONE void k_bytes(char* to, const char* from, int bytes) {
  if constexpr (most >= least) {
    if (bytes & most) { __builtin_memcpy(to, from, most); to += most; from += most; }
    k_bytes<most / 2, least>(to, from, bytes);
  }
}
template <class R> K_ONE R k_some_raw(const void* p, int n) {
  constexpr int half = k_width<R> / 2;
  if constexpr (k_wide<R>) {
    const int low = n < half ? n : half;
    return R(k_some_raw<k_half<R>>(p, low), k_some_raw<k_half<R>>((const char*)p + sizeof(R) / 2, n - low));
  } else
  K_EACH(K_SOME_OF)
  K_EACH2(return (R)__builtin_ia32_maskloadd256((const W*)p, some);, return (R)__builtin_ia32_maskloadd((const W*)p, some);,
          return (R)__builtin_ia32_maskloadq256((const W*)p, some);, return (R)__builtin_ia32_maskloadq((const W*)p, some);) {
    R raw{};
    k_bytes<sizeof(R), sizeof(k_element<R>)>((char*)&raw, (const char*)p, n * (int)sizeof(k_element<R>));
    return raw;
  }
}
template <class R> K_ONE void k_put_raw(void* p, R raw, int n) {
  constexpr int half = k_width<R> / 2;
  if constexpr (k_wide<R>) {
    const int low = n < half ? n : half;
    k_put_raw(p, raw.low, low);
    k_put_raw((char*)p + sizeof(R) / 2, raw.high, n - low);
  } else
  K_EACH(K_PUT_OF)
  K_EACH2(__builtin_ia32_maskstored256((W*)p, some, (W)raw);, __builtin_ia32_maskstored((W*)p, some, (W)raw);,
          __builtin_ia32_maskstoreq256((W*)p, some, (W)raw);, __builtin_ia32_maskstoreq((W*)p, some, (W)raw);) {
    k_bytes<sizeof(R), sizeof(k_element<R>)>((char*)p, (const char*)&raw, n * (int)sizeof(k_element<R>));
  }
}
#undef K_EACH
#undef K_EACH2
template <class S, int N> K_ONE C<S, N> k_load(const S* p) { return k_widen<S, N>(k_get<typename k_raw<S, N>::type>(p)); }
template <class S, int N> K_ONE C<S, N> k_load(const S* p, int n) {
#if K_BYTES == 64
  if constexpr (__is_same(S, float) && N == 16)
    return (C<S, N>)__builtin_ia32_loadups512_mask(p, V<float, 16>{}, (unsigned short)((1u << n) - 1));
#endif
  return k_widen<S, N>(k_some_raw<typename k_raw<S, N>::type>(p, n));
}
// n elements from p[at], of those that are in p[0 .. total)
template <class S, int N> K_ONE C<S, N> k_load_in(const S* p, int64_t at, int64_t total, int n) {
  if (at >= 0 && at + N <= total) return k_load<S, N>(p + at);
  typename k_raw<S, N>::type raw{};
  for (int i = 0; i < n; ++i)
    if (at + i >= 0 && at + i < total) __builtin_memcpy((char*)&raw + i * sizeof(S), p + at + i, sizeof(S));
  return k_widen<S, N>(raw);
}
// the elements of two vectors at places that are known when it is compiled
template <class R, int... from> K_ONE R k_shuffle(R a, R b, k_list<from...>) {
#ifdef K_SHUFFLED
  return __builtin_shufflevector(a, b, from...);
#else
  constexpr int n = k_width<R>;
  return R{(from < n ? a[from % n] : b[from % n])...};
#endif
}
// with elements of the load `d` of those of every D-th
template <int N, int D, int d> struct k_apart {
  static constexpr int start = d < D - 1 ? d * N : D * (N - 1) + 1 - N;
  static constexpr int from(int i) { return i * D / N == d ? N + i * D - start : d == 1 && i * D < N ? i * D : i; }
  template <class R, int... I> static K_METHOD R with(R out, R next, k_list<I...>) { return k_shuffle(out, next, k_list<from(I)...>{}); }
  template <class R, class S> static K_METHOD R loaded(R out, const S* p) {
    if constexpr (d < D) {
      R next;
      __builtin_memcpy(&next, p + start, sizeof(R));
      return k_apart<N, D, d + 1>::loaded(with(out, next, typename k_range<N>::type{}), p);
    }
    else return out;
  }
};
// every D-th of D * (N - 1) + 1 elements, by loads of neighbours of which the last ends with the last element
template <class S, int N, int D> K_ONE C<S, N> k_load_apart(const S* p) {
  typedef typename k_raw<S, N>::type R;
  if constexpr (k_wide<C<S, N>>)
    return k_joined<k_element<C<S, N>>, N>(k_load_apart<S, N / 2, D>(p), k_load_apart<S, N / 2, D>(p + N / 2 * D));
  else {
    R out;
    __builtin_memcpy(&out, p, sizeof(R));
    return k_widen<S, N>(k_apart<N, D, 1>::loaded(out, p));
  }
}
template <class S, int N> K_ONE C<S, N> k_load_step(const S* p, int64_t step, int n) {
  if constexpr (N >= 4) {
    if (__builtin_constant_p(n) && n == N && __builtin_constant_p(step)) {
      if (step == 2) return k_load_apart<S, N, 2>(p);
      if (step == 3) return k_load_apart<S, N, 3>(p);
      if (step == 4) return k_load_apart<S, N, 4>(p);
    }
  }
  typename k_raw<S, N>::type raw{};
  for (int i = 0; i < n; ++i) __builtin_memcpy((char*)&raw + i * sizeof(S), p + i * step, sizeof(S));
  return k_widen<S, N>(raw);
}
// the columns of N rows of N elements from p[at], of which the first n rows are there; what is not in p[0 .. total) is read by nobody
template <class S, int N> struct k_tile { V<S, N> column[N]; };
// blocks of D elements of two rows, every second one of the other row
template <bool high, int D, class R, int... I> K_ONE R k_exchanged(R a, R b, k_list<I...>) {
  constexpr int n = sizeof...(I);
  return k_shuffle(a, b, k_list<(high ? (I & D ? n + I : I + D) : I & D ? n + I - D : I)...>{});
}
template <class S, int N, int D> K_ONE void k_turn(V<S, N>* rows) {
  for (int i = 0; i < N; ++i)
    if (!(i & D)) {
      const V<S, N> a = rows[i], b = rows[i + D];
      rows[i] = k_exchanged<false, D>(a, b, typename k_range<N>::type{});
      rows[i + D] = k_exchanged<true, D>(a, b, typename k_range<N>::type{});
    }
  if constexpr (D > 1) k_turn<S, N, D / 2>(rows);
}
template <class S, int N> K_ONE k_tile<S, N> k_load_tile(const S* p, int64_t at, int64_t total, int64_t step, int n) {
  k_tile<S, N> out;
  if constexpr (k_wide<V<S, N>>) {
    constexpr int H = N / 2;
    for (int side = 0; side < 2; ++side) {
      const k_tile<S, H> top = k_load_tile<S, H>(p, at + side * H, total, step, n < H ? n : H);
      const k_tile<S, H> below = k_load_tile<S, H>(p, at + H * step + side * H, total, step, n < H ? 0 : n - H);
      for (int j = 0; j < H; ++j) out.column[side * H + j] = V<S, N>(top.column[j], below.column[j]);
    }
  } else {
    const int64_t last = at + (n - 1) * step;
    if (__builtin_expect(at >= 0 && last >= 0 && at + N <= total && last + N <= total, 1)) {
      for (int i = 0; i < N; ++i)
        if (i < n) __builtin_memcpy(&out.column[i], p + (at + i * step), sizeof(V<S, N>));
        else out.column[i] = V<S, N>{};
    } else {
      S rows[N][N] = {};
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < N; ++j)
          if (const int64_t from = at + i * step + j; from >= 0 && from < total) rows[i][j] = p[from];
      __builtin_memcpy(out.column, rows, sizeof(rows));
    }
    k_turn<S, N, N / 2>(out.column);
  }
  return out;
}
template <int N> K_ONE V<int64_t, N> k_within(V<int64_t, N> at, int64_t total) {
  at = k_pick(at < total, at, V<int64_t, N>{} + (total - 1));
  return k_pick(at > 0, at, V<int64_t, N>{});
}
template <class S, int N> K_ONE C<S, N> k_gather(const S* p, V<int64_t, N> at, int n, int64_t total = 1) {
  typename k_raw<S, N>::type raw{};
  if (total > 0)
    for (int i = 0; i < n; ++i) __builtin_memcpy((char*)&raw + i * sizeof(S), p + at[i], sizeof(S));
  return k_widen<S, N>(raw);
}
template <class S> K_ONE auto k_load_safe(const S* p, int64_t at, int64_t total) -> decltype(k_load_one(*p)) {
  return at >= 0 && at < total ? k_load_one(p[at]) : decltype(k_load_one(*p)){};
}
K_ONE void k_store_one(k_f16* p, float x) { *p = k_to_f16(x); }
K_ONE void k_store_one(k_bf16* p, float x) { *p = k_to_bf16(x); }
K_ONE void k_store_one(k_bool* p, bool x) { p->bits = x; }
template <class S> K_ONE void k_store_one(S* p, S x) { *p = x; }
template <class S, int N> K_ONE void k_store(S* p, C<S, N> v) {
  k_put(p, k_narrow<S, N>(v));
}
template <class S, int N> K_ONE void k_store(S* p, C<S, N> v, int n) {
#if K_BYTES == 64
  if constexpr (__is_same(S, float) && N == 16) { __builtin_ia32_storeups512_mask(p, v, (unsigned short)((1u << n) - 1)); return; }
#endif
  k_put_raw(p, k_narrow<S, N>(v), n);
}
template <class S, int N> K_ONE void k_store_step(S* p, C<S, N> v, int64_t step, int n) {
  const typename k_raw<S, N>::type raw = k_narrow<S, N>(v);
  for (int i = 0; i < n; ++i) __builtin_memcpy(p + i * step, (const char*)&raw + i * sizeof(S), sizeof(S));
}
template <class S, int N> K_ONE void k_scatter(S* p, C<S, N> v, V<int64_t, N> at, int n) {
  const typename k_raw<S, N>::type raw = k_narrow<S, N>(v);
  for (int i = 0; i < n; ++i) __builtin_memcpy(p + at[i], (const char*)&raw + i * sizeof(S), sizeof(S));
}

// ---- integers -------------------------------------------------------------------------------------------------------------
template <class T> struct k_unsigned_of { typedef V<typename k_int<sizeof(k_element<T>)>::unsigned_type, k_width<T>> type; };
template <class T> constexpr bool k_short = k_of<T>::vector && sizeof(T) < k_least && k_width<T> > 1;
#define K_WRAP(NAME, OP, LANES) \
  K_FN T NAME(T a, T b) { \
    if constexpr (k_short<T>) { /* compilers have less for what fills no register */ \
      typedef typename k_int<k_least / k_width<T>>::unsigned_type W; \
      return k_as<k_element<T>, k_width<T>>(k_as<W, k_width<T>>(a) OP k_as<W, k_width<T>>(b)); \
    } \
    else if constexpr (k_of<T>::vector) { typedef typename k_unsigned_of<T>::type U; return (T)LANES((U)a, (U)b); } \
    else return (T)((uint64_t)a OP (uint64_t)b); \
  }
K_WRAP(k_add, +, k_plus) K_WRAP(k_mul, *, k_times)
#undef K_WRAP
K_FN T k_lanewise2(T a, T b, k_element<T> (*f)(k_element<T>, k_element<T>)) {
  T out;
  for (int i = 0; i < k_width<T>; ++i) out[i] = f(a[i], b[i]);
  return out;
}
K_FN T k_lanewise(T a, k_element<T> (*f)(k_element<T>)) {
  T out;
  for (int i = 0; i < k_width<T>; ++i) out[i] = f(a[i]);
  return out;
}
K_FN T k_div_floor(T a, T b) {  // 0 where b is 0: such a quotient has no value, and must not trap
  if (b == 0) return 0;
  if constexpr (k_signed<T>) if (b == T(-1)) return (T)(0 - (uint64_t)a);
  const T q = a / b;
  return (a % b != 0) && ((a < 0) != (b < 0)) ? q - 1 : q;
}
K_FN T k_div_trunc(T a, T b) {
  if (b == 0) return 0;
  if constexpr (k_signed<T>) if (b == T(-1)) return (T)(0 - (uint64_t)a);
  return a / b;
}
K_ONE double k_one_floor(double x) { return __builtin_floor(x); }
K_ONE float k_one_floor(float x) { return __builtin_floorf(x); }
K_FN T k_mod_float(T a, T b) {  // the sign of the divisor, as Python
  T r = sizeof(T) == 4 ? (T)__builtin_fmodf((float)a, (float)b) : (T)__builtin_fmod((double)a, (double)b);
  if (r != 0 && ((r < 0) != (b < 0))) r += b;
  return r;
}
K_FN T k_floordiv(T a, T b) {
  if constexpr (k_floating<T>) {
    if constexpr (k_of<T>::vector) return k_lanewise2(a, b, k_floordiv<k_element<T>>);
    else {
      if (b == 0) return a / b;
      const T m = k_mod_float(a, b), q = (a - m) / b, f = k_one_floor(q);
      return q - f > T(0.5) ? f + 1 : f;
    }
  }
  else if constexpr (k_of<T>::vector) return k_lanewise2(a, b, k_div_floor<k_element<T>>);
  else return k_div_floor(a, b);
}
K_FN T k_floormod(T a, T b) {
  if constexpr (k_of<T>::vector) return k_lanewise2(a, b, k_floormod<k_element<T>>);
  else if constexpr (k_floating<T>) return k_mod_float(a, b);
  else return b == 0 ? T(0) : (T)((uint64_t)a - (uint64_t)k_div_floor(a, b) * (uint64_t)b);
}
K_FN T k_truncdiv(T a, T b) {
  if constexpr (k_of<T>::vector) return k_lanewise2(a, b, k_div_trunc<k_element<T>>);
  else return k_div_trunc(a, b);
}
K_FN T k_ceildiv(T a, T b) {
  if constexpr (k_of<T>::vector) return k_lanewise2(a, b, k_ceildiv<k_element<T>>);
  else return b == 0 ? T(0) : (T)(k_div_floor(a, b) + (k_floormod(a, b) != 0 ? 1 : 0));
}
// the next place after `at` where start + (place) * step >= 0 changes, or `end`
K_ONE int64_t k_cut(int64_t at, int64_t end, int64_t change) { return change > at && change < end ? change : end; }
K_ONE int64_t k_min64(int64_t a, int64_t b) { return a < b ? a : b; }
// rows per task, so that a task is worth being handed to a thread
K_ONE int64_t k_per_task(int64_t work, int64_t grain) { return work <= 0 ? grain : work >= grain ? 1 : (grain + work - 1) / work; }
K_ONE int64_t k_int_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t out = 1, b = (uint64_t)base;
  for (; exponent; exponent >>= 1, b *= b) if (exponent & 1) out *= b;
  return (int64_t)out;
}

// ---- functions of one lane ------------------------------------------------------------------------------------------------
#define K_LIBM(NAME) \
  K_ONE float k_one_##NAME(float x) { return __builtin_##NAME##f(x); } \
  K_ONE double k_one_##NAME(double x) { return __builtin_##NAME(x); }
#define K_LANEWISE(NAME) \
  K_FN T k_##NAME(T x) { \
    if constexpr (k_of<T>::vector) return k_lanewise(x, (k_element<T> (*)(k_element<T>))k_one_##NAME); \
    else return k_one_##NAME(x); \
  }
#define K_BOTH(NAME) K_LIBM(NAME) K_LANEWISE(NAME)
K_BOTH(tan) K_BOTH(asin) K_BOTH(acos) K_BOTH(atan) K_BOTH(sinh) K_BOTH(cosh) K_BOTH(asinh) K_BOTH(acosh) K_BOTH(atanh)
K_LIBM(exp) K_LIBM(log) K_LIBM(log1p) K_LIBM(tanh) K_LIBM(erf) K_LIBM(sin) K_LIBM(cos) K_LIBM(sqrt) K_LIBM(ceil) K_LIBM(trunc) K_LIBM(rint)
#undef K_BOTH
#undef K_LIBM
K_FN T k_pow(T a, T b) {
  if constexpr (k_of<T>::vector) return k_lanewise2(a, b, k_pow<k_element<T>>);
  else if constexpr (!k_floating<T>) return (T)k_int_power((int64_t)a, (int64_t)b);
  else if constexpr (sizeof(T) == 4) return __builtin_powf(a, b);
  else return __builtin_pow(a, b);
}
// instructions of NEON for two and four lanes, which need no header of theirs so; smallest and largest are NaN where either is
#ifdef __aarch64__
template <class T> constexpr bool k_neon = k_of<T>::vector && k_floating<T> && k_width<T> > 1;
#define K_LANES1(OP, L) __asm__(#OP " %0." L ", %1." L : "=w"(out) : "w"(x))
#define K_LANES2(OP, L) __asm__(#OP " %0." L ", %1." L ", %2." L : "=w"(out) : "w"(a), "w"(b))
#define K_NEON(LANES, OP) \
  if constexpr (k_neon<T>) { \
    T out; \
    if constexpr (sizeof(k_element<T>) == 8) LANES(OP, "2d"); \
    else if constexpr (k_width<T> == 4) LANES(OP, "4s"); \
    else LANES(OP, "2s"); \
    return out; \
  } else
#define K_NEON1(OP) K_NEON(K_LANES1, OP)
#define K_NEON2(OP) K_NEON(K_LANES2, OP)
#else
template <class T> constexpr bool k_neon = false;
#define K_NEON1(OP)
#define K_NEON2(OP)
#endif
// the smaller and the larger; where they are not ordered NaN, or the second
#ifdef __AVX512F__
#define K_PS512(T) (__is_same(k_element<T>, float) && sizeof(T) == 64)
#define K_NATIVE2(NAME) if constexpr (K_PS512(T)) return (T)__builtin_ia32_##NAME##ps512_mask((V<float, 16>)a, (V<float, 16>)b, V<float, 16>{}, (unsigned short)-1, 4); else
#else
#define K_NATIVE2(NAME)
#endif
#ifdef __AVX__
#define K_PS256(T) (__is_same(k_element<T>, float) && sizeof(T) == 32)
#define K_HALF2(NAME) if constexpr (K_PS256(T)) return (T)__builtin_ia32_##NAME##ps256((V<float, 8>)a, (V<float, 8>)b); else
#else
#define K_HALF2(NAME)
#endif
K_FN T k_lower(T a, T b) { K_HALVES2(k_lower) K_NATIVE2(min) K_HALF2(min) K_NEON2(fmin) return k_pick(a < b, a, b); }
K_FN T k_upper(T a, T b) { K_HALVES2(k_upper) K_NATIVE2(max) K_HALF2(max) K_NEON2(fmax) return k_pick(a > b, a, b); }
// NaN where either is, as ONNX Runtime and numpy
K_FN T k_max(T a, T b) {
  if constexpr (k_neon<T>) return k_upper(a, b);
  else if constexpr (k_floating<T>) { const T m = k_upper(a, b); return k_pick(a != a, a, m); }
  else return k_pick(k_above(a, b), a, b);
}
K_FN T k_min(T a, T b) {
  if constexpr (k_neon<T>) return k_lower(a, b);
  else if constexpr (k_floating<T>) { const T m = k_lower(a, b); return k_pick(a != a, a, m); }
  else return k_pick(k_above(b, a), a, b);
}
K_FN T k_abs(T x) {
  if constexpr (k_floating<T>) {
    if constexpr (k_of<T>::vector) {
      typedef typename k_unsigned_of<T>::type U;
      return (T)((U)x & ((U{} - 1) >> 1));
    } else return sizeof(T) == 4 ? (T)__builtin_fabsf((float)x) : (T)__builtin_fabs((double)x);
  }
  else if constexpr (!k_signed<T>) return x;
  else if constexpr (k_tiny<T>) return k_as<k_element<T>, k_width<T>>(k_abs(k_more(x)));
  else if constexpr (k_of<T>::vector) return k_pick(x < 0, (T)(-(typename k_unsigned_of<T>::type)x), x);
  else return x < 0 ? (T)(0 - (uint64_t)x) : x;
}
K_FN T k_sign(T x) {
  if constexpr (k_tiny<T>) return k_as<k_element<T>, k_width<T>>(k_sign(k_more(x)));
  else if constexpr (k_of<T>::vector) {
    typedef k_element<T> E;
    const T one = T{} + E(1), zero = T{};
    if constexpr (k_floating<T>) return k_pick(x > 0, one, k_pick(x < 0, zero - one, k_pick(x != x, x, zero)));
    else if constexpr (k_signed<T>) return k_pick(x > 0, one, k_pick(x < 0, zero - one, zero));
    else return k_pick(x > 0, one, zero);
  } else return x > 0 ? T(1) : x < 0 ? T(-1) : x != x ? x : T(0);
}
template <class T, bool vector> struct k_answer { typedef bool type; };
template <class T> struct k_answer<T, true> { typedef k_mask<T> type; };
K_FN typename k_answer<T, k_of<T>::vector>::type k_isnan(T x) {
  if constexpr (k_of<T>::vector) return k_test_as(x != x);
  else return x != x;
}
K_FN typename k_answer<T, k_of<T>::vector>::type k_isinf(T x) {
  if constexpr (!k_floating<T>) { if constexpr (k_of<T>::vector) return k_mask<T>{}; else return false; }
  else {
    const k_element<T> top = (k_element<T>)__builtin_inf();
    if constexpr (k_of<T>::vector) return k_test_as(k_abs(x) == T{} + top);
    else return k_abs(x) == top;
  }
}
#include "kernel_math.h"
// ---- the lanes of a reduction ----------------------------------------------------------------------------------------------
#define K_JOIN(NAME, JOINED) \
  template <class S, int N> K_ONE typename k_compute<S>::type k_join_##NAME(V<typename k_compute<S>::type, N> v) { \
    typedef typename k_compute<S>::type E; \
    if constexpr (N == 1) return v[0]; \
    else if constexpr (N == 2) { const E a = v[0], b = v[1]; return JOINED; } \
    else { \
      const V<E, N / 2> a = k_half_of<false>(v), b = k_half_of<true>(v); \
      return k_join_##NAME<S, N / 2>(JOINED); \
    } \
  }
K_JOIN(sum, ([&] { if constexpr (k_floating<E>) return a + b; else return k_add(a, b); }()))
K_JOIN(prod, ([&] { if constexpr (k_floating<E>) return a * b; else return k_mul(a, b); }()))
K_JOIN(max, k_max(a, b))
K_JOIN(min, k_min(a, b))
K_JOIN(any_lanes, (a | b))
K_JOIN(all_lanes, (a & b))
#undef K_JOIN
template <class S, int N> K_ONE bool k_join_any(V<int32_t, N> v) { return k_join_any_lanes<int32_t, N>(v) != 0; }
template <class S, int N> K_ONE bool k_join_all(V<int32_t, N> v) { return k_join_all_lanes<int32_t, N>(v) != 0; }
K_ONE int64_t k_up(int64_t elements, int64_t bytes) { return (elements * bytes + 63) / 64 * 64; }
// memory of one task: the stack, or the heap where rows are long
struct k_room {
  alignas(64) char small[65536 - 64];
  char* all;
  explicit k_room(int64_t bytes) : all(bytes <= (int64_t)sizeof(small) ? small : (char*)__builtin_malloc((size_t)bytes)) {}
  ~k_room() { if (all != small) __builtin_free(all); }
};

// ---- products of matrices -------------------------------------------------------------------------------------------------
// rows in blocks of which `points` floats each are in a cache of so many bytes, of about the same size; and parts of the columns, where
// there are too few blocks for two threads
K_ONE int64_t k_max64(int64_t a, int64_t b) { return a > b ? a : b; }
K_ONE int64_t k_blocks(int64_t rows, int64_t points, int64_t bytes) {
  const int64_t fit = k_max64(6, k_min64(64, bytes / (int64_t)sizeof(float) / points));
  return (rows + fit - 1) / fit;
}
K_ONE int64_t k_shares(int64_t blocks, int64_t panels) { return blocks > 1 || panels < 2 ? 1 : 2; }
// R rows of a, `step` apart, times the columns of a panel, N vectors of W elements
template <int R, int N, int W> static __attribute__((noinline)) void k_product_rows(const float* a, int64_t step, const float* b, int64_t terms, float* out) {
  V<float, W> sum[R][N] = {};
  for (int64_t k = 0; k < terms; ++k, b += N * W) {
    V<float, W> row[N];
    for (int n = 0; n < N; ++n) row[n] = k_load<float, W>(b + n * W);
    // between two runs of a whole model weights leave the caches, and a page is all that a processor looks ahead by itself
    for (int n = 0; n < N; ++n) __builtin_prefetch(b + (64 * N + n) * W);
    for (int r = 0; r < R; ++r) {
      const float x = a[r * step + k];
      for (int n = 0; n < N; ++n) sum[r][n] += x * row[n];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) k_store<float, W>(out + (r * N + n) * W, sum[r][n]);
}
template <int R, int N, int W>
static inline void k_product_some(int rows, const float* a, int64_t step, const float* b, int64_t terms, float* out) {
  if constexpr (R > 1)
    if (rows < R) return k_product_some<R - 1, N, W>(rows, a, step, b, terms, out);
  k_product_rows<R, N, W>(a, step, b, terms, out);
}
// all rows, in blocks of R or less, of about the same size
template <int R, int N, int W>
static inline void k_products(const float* a, int64_t step, const float* b, int64_t terms, float* out, int64_t rows) {
  const int64_t blocks = (rows + R - 1) / R;
  for (int64_t k = 0; k < blocks; ++k) {
    const int64_t from = rows * k / blocks, to = rows * (k + 1) / blocks;
    k_product_some<R, N, W>((int)(to - from), a + from * step, step, b, terms, out + from * (N * W));
  }
}
#pragma GCC diagnostic pop
#endif
