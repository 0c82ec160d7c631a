// ---- functions of vectors of f32: polynomials fitted over the ranges that the reductions leave; f64 is element by element ------
// exact where the last bit of the result is: k_sqrt, k_floor, k_ceil, k_trunc, k_round. Largest errors against float64, in units
// of the last place, as tests/codegen/test_kernel_functions.py measures them:
//   k_exp 2, k_log 2, k_log1p 3, k_rsqrt 2, k_tanh 6, k_erf 6, k_sin 2 and k_cos 2 for |x| < 8192 (of the libm beyond)
template <class T> constexpr bool k_f32_lanes = k_of<T>::vector && __is_same(k_element<T>, float);
template <class T> using k_bits_of = V<int32_t, k_width<T>>;
#define K_ELSE(NAME) \
  else if constexpr (k_of<T>::vector) return k_lanewise(x, (k_element<T> (*)(k_element<T>))k_one_##NAME); \
  else return k_one_##NAME(x);

#ifdef __AVX512F__
#define K_NATIVE(CALL) if constexpr (k_f32_lanes<T> && k_width<T> == 16) return (T)CALL; else
#else
#define K_NATIVE(CALL)
#endif
#ifdef __AVX2__
#define K_NATIVE8(CALL) if constexpr (k_f32_lanes<T> && k_width<T> == 8) return (T)CALL; else
#else
#define K_NATIVE8(CALL)
#endif
#ifdef __SSE4_1__
#define K_NATIVE4(CALL) if constexpr (k_f32_lanes<T> && k_width<T> == 4) return (T)CALL; else
#else
#define K_NATIVE4(CALL)
#endif
#define K_EACH(NAME, CALL, CALL8, CALL4, NEON) \
  K_FN T NAME(T x) { \
    K_HALVES1(NAME) K_NATIVE(CALL) K_NATIVE8(CALL8) K_NATIVE4(CALL4) K_NEON1(NEON) \
    if constexpr (k_f32_lanes<T>) { \
      float a[k_width<T>]; \
      __builtin_memcpy(a, &x, sizeof(x)); \
      for (int i = 0; i < k_width<T>; ++i) a[i] = K_F(a[i]); \
      __builtin_memcpy(&x, a, sizeof(x)); \
      return x; \
    }
#define K_F __builtin_sqrtf
K_EACH(k_sqrt, __builtin_ia32_sqrtps512_mask((V<float, 16>)x, (V<float, 16>)x, (unsigned short)-1, 4), __builtin_ia32_sqrtps256((V<float, 8>)x),
       __builtin_ia32_sqrtps((V<float, 4>)x), fsqrt) K_ELSE(sqrt) }
#undef K_F
// 1 / sqrt(x): 14 bits of the processor's and a step of Newton's method, 11 bits and one of third order, or 8 bits and two steps
#define K_RSQRT(N, NAME) \
  if constexpr (k_f32_lanes<T> && k_width<T> == N) { \
    const auto small = x < 1.17549435e-38f; /* the processor takes these for 0 */ \
    const T a = small ? x * 16777216.0f : x, y = (T)NAME((V<float, N>)a), h = 1.0f - a * y * y; \
    const T better = y + y * h * (h * 0.375f + 0.5f), found = better == better ? better : y; \
    return small ? found * 4096.0f : found; \
  } else
K_FN T k_rsqrt(T x) {
  K_HALVES1(k_rsqrt)
#ifdef __AVX2__
  K_RSQRT(8, __builtin_ia32_rsqrtps256)
#endif
#ifdef __SSE4_1__
  K_RSQRT(4, __builtin_ia32_rsqrtps)
#endif
#ifdef __aarch64__
  if constexpr (k_f32_lanes<T> && k_width<T> == 4) {
    // frsqrts is (3 - a b) / 2
    T y, step;
    __asm__("frsqrte %0.4s, %1.4s" : "=w"(y) : "w"(x));
    T better = y;
    for (int i = 0; i < 2; ++i) {
      __asm__("frsqrts %0.4s, %1.4s, %2.4s" : "=w"(step) : "w"(x * better), "w"(better));
      better = better * step;
    }
    return better == better ? better : y;         // those of 0, infinity and NaN are themselves
  } else
#endif
  {
#ifdef __AVX512F__
  if constexpr (k_f32_lanes<T> && k_width<T> == 16) {
    const T y = (T)__builtin_ia32_rsqrt14ps512_mask((V<float, 16>)x, V<float, 16>{}, (unsigned short)-1);
    const T better = y + y * 0.5f * (1.0f - x * y * y);
    return better == better ? better : y;         // those of 0, infinity and NaN are themselves
  }
#endif
  return 1.0f / k_sqrt(x);
  }
}
#define K_ROUNDED(NAME, LIBM, MODE, NEON) \
  K_EACH(NAME, __builtin_ia32_rndscaleps_mask((V<float, 16>)x, MODE, (V<float, 16>)x, (unsigned short)-1, 4), \
         __builtin_ia32_roundps256((V<float, 8>)x, MODE), __builtin_ia32_roundps((V<float, 4>)x, MODE), NEON) K_ELSE(LIBM) }
#define K_F __builtin_rintf
K_ROUNDED(k_round, rint, 8, frintn)
#undef K_F
#define K_F __builtin_floorf
K_ROUNDED(k_floor, floor, 9, frintm)
#undef K_F
#define K_F __builtin_ceilf
K_ROUNDED(k_ceil, ceil, 10, frintp)
#undef K_F
#define K_F __builtin_truncf
K_ROUNDED(k_trunc, trunc, 11, frintz)
#undef K_F

K_FN T k_exp(T x) {
  K_HALVES1(k_exp)
  if constexpr (k_f32_lanes<T>) {
    const T a = k_upper(T{} - 104.0f, k_lower(T{} + 89.0f, x));
#ifdef __AVX512F__
    constexpr bool scales = k_width<T> == 16;
#else
    constexpr bool scales = false;
#endif
    // 1.5 * 2^23 has its last bit at 1: what is added is rounded, and the low bits of the sum are a whole number
    T n, bits = T{};
    if constexpr (scales) n = k_round(a * 1.44269504f);
    else { bits = a * 1.44269504f + 12582912.0f; n = bits - 12582912.0f; }
    T r = n * -0.693359375f + a;
    r = n * 2.12194440e-4f + r;
    const T rr = r * r;
    T p = (rr * 1.3950473e-3f + (r * 8.3688843e-3f + 4.1666206e-2f)) * rr + (r * 1.66665189e-1f + 0.5f);
    p = p * rr + (r + 1.0f);
#ifdef __AVX512F__
    if constexpr (scales)
      return (T)__builtin_ia32_scalefps512_mask((V<float, 16>)p, (V<float, 16>)n, (V<float, 16>)p, (unsigned short)-1, 4);
#endif
    // p * 2^n in two steps, each of which a number has an exponent for
    typedef k_bits_of<T> I;
    const I whole = (I)bits, half = whole >> 1;
    return (T)((I)p + (half << 23)) * (T)(((whole - half) << 23) + 0x3f800000);
  }
  K_ELSE(exp)
}
// log(1 + f) + k log(2) for f in [-1/4, 1/2]
K_FN T k_log_of(T f, T k) {
  const T ff = f * f, f4 = ff * ff;
  const T low = (f * -1.66555641e-1f + 1.99998442e-1f) * ff + (f * -2.50001660e-1f + 3.33333371e-1f);
  const T high = (f * -9.25239131e-2f + 1.17358660e-1f) * ff + (f * -1.27148121e-1f + 1.42705337e-1f);
  const T p = (f4 * 3.88050975e-2f + high) * f4 + low;
  T y = p * (ff * f) + k * 1.42860677e-6f;
  y = ff * -0.5f + y;
  return k * 0.693145752f + (f + y);
}
K_FN T k_log(T x) {
  K_HALVES1(k_log)
  if constexpr (k_f32_lanes<T>) {
    typedef k_bits_of<T> I;
#ifdef __AVX512F__
    if constexpr (k_width<T> == 16) {
      // mantissas in [0.75, 1.5), NaN below 0; the exponents of 0 and infinity are infinite already
      const T m = (T)__builtin_ia32_getmantps512_mask((V<float, 16>)x, 11, V<float, 16>{}, (unsigned short)-1, 4);
      const T e = (T)__builtin_ia32_getexpps512_mask((V<float, 16>)x, V<float, 16>{}, (unsigned short)-1, 4);
      return k_log_of(m - 1.0f, m < 1.0f ? e + 1.0f : e);
    }
#endif
    const I small = x < 1.17549435e-38f;
    const T a = small ? x * 8388608.0f : x;
    const I bits = (I)a - 0x3f400000, e = (bits >> 23) - (small & 23);
    const T f = (T)((bits & 0x7fffff) + 0x3f400000) - 1.0f;
    const T top = T{} + __builtin_inff();
    T y = k_log_of(f, __builtin_convertvector(e, T));
    y = x < top ? y : x;                          // infinity and NaN are themselves
    y = x == 0.0f ? -top : y;
    return x < 0.0f ? T{} + __builtin_nanf("") : y;
  }
  K_ELSE(log)
}
K_FN T k_log1p(T x) {
  K_HALVES1(k_log1p)
  if constexpr (k_f32_lanes<T>) {
    const T u = x + 1.0f, lost = x - (u - 1.0f);
    return k_log(u) + (k_abs(x) < 16777216.0f ? lost : T{});
  }
  K_ELSE(log1p)
}
K_FN T k_tanh(T x) {
  K_HALVES1(k_tanh)
  if constexpr (k_f32_lanes<T>) {
    const T a = k_upper(T{} - 9.02f, k_lower(T{} + 9.02f, x));
    const T t = a * a;
    const T tt = t * t;
    const T p = ((t * -1.2203178e-11f + 3.0584624e-8f) * tt + (t * 2.8007291e-5f + 3.86831942e-3f)) * tt + (t * 1.36799084e-1f + 1.0f);
    const T q = (tt * 1.28735493e-6f + (t * 3.93861643e-4f + 2.72458084e-2f)) * tt + (t * 4.70132405e-1f + 1.0f);
    // exactly 1 beyond: x * (1 - f(x)) of a huge x must vanish
    return k_upper(T{} - 1.0f, k_lower(T{} + 1.0f, a * p / q + (x - a)));
  }
  K_ELSE(tanh)
}
K_FN T k_erf(T x) {
  K_HALVES1(k_erf)
  if constexpr (k_f32_lanes<T>) {
    const T a = k_upper(T{} - 3.92f, k_lower(T{} + 3.92f, x));
    const T t = a * a;
    const T tt = t * t, t4 = tt * tt;
    const T low = (t * 5.42440228e-2f + 1.85136363e-1f) * t + 1.12837917f;
    const T high = (t * -1.27992142e-8f + 4.6091084e-6f) * tt + (t * 3.76755355e-4f + 3.83865391e-3f);
    const T p = high * (tt * t) + low;
    const T q = (t * 6.23980061e-5f + 1.30152657e-3f) * t4 + ((t * 1.54300967e-2f + 1.13874113e-1f) * tt + (t * 4.97406236e-1f + 1.0f));
    // exactly 1 beyond: x * (1 - f(x)) of a huge x must vanish
    return k_upper(T{} - 1.0f, k_lower(T{} + 1.0f, a * p / q + (x - a)));
  }
  K_ELSE(erf)
}
// sin(x + turn * pi / 2)
K_FN T k_sine(T x, int turn) {
  typedef k_bits_of<T> I;
  const T n = k_round(x * 6.36619772e-1f);
  const I quarter = __builtin_convertvector(n, I) + turn;
  T r = n * -1.5703125f + x;
  r = n * -4.83751296997e-4f + r;
  r = n * -7.54953362047e-8f + r;
  r = n * -2.56334406e-12f + r;
  const T t = r * r;
  T s = t * -1.95156525e-4f + 8.3321663e-3f;
  s = s * t - 1.66666548e-1f;
  s = s * (t * r) + r;
  T c = t * -2.72084693e-7f + 2.47994988e-5f;
  c = c * t - 1.38888837e-3f;
  c = c * t + 4.16666666e-2f;
  c = c * (t * t) + (t * -0.5f + 1.0f);
  const T y = (quarter & 1) != 0 ? c : s;
  return (T)((I)y ^ ((quarter & 2) << 30));
}
K_FN bool k_any_beyond(T x, float limit) {
  const k_bits_of<T> far = ~(k_bits_of<T>)(k_abs(x) < limit);
  int32_t found = 0;
  for (int i = 0; i < k_width<T>; ++i) found |= far[i];
  return found != 0;
}
#define K_TURNED(NAME, LIBM, TURN) \
  K_FN T NAME(T x) { \
    K_HALVES1(NAME) \
    if constexpr (k_f32_lanes<T>) { \
      if (__builtin_expect(k_any_beyond(x, 8192.0f), 0)) return k_lanewise(x, (float (*)(float))k_one_##LIBM); \
      return k_sine(x, TURN); \
    } \
    K_ELSE(LIBM) \
  }
K_TURNED(k_sin, sin, 0)
K_TURNED(k_cos, cos, 1)
