// ---- vectors: those of GCC and clang as far as a register goes, and pairs of halves where they are wider ---------------------------
// A compiler takes vectors that no register holds element by element, or by way of memory; halves of them it takes as they are.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define K_BYTES 64
#elif defined(__AVX2__)
#define K_BYTES 32
#else
#define K_BYTES 16
#endif
template <class T, int N> struct k_pair;
template <class T, int N, bool wide> struct k_vector { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <class T, int N> struct k_vector<T, N, true> { typedef k_pair<T, N> type; };
template <class T, int N> using V = typename k_vector<T, N, (N * sizeof(T) > K_BYTES)>::type;

template <int B> struct k_int;
template <> struct k_int<1> { typedef int8_t type; typedef uint8_t unsigned_type; };
template <> struct k_int<2> { typedef int16_t type; typedef uint16_t unsigned_type; };
template <> struct k_int<4> { typedef int32_t type; typedef uint32_t unsigned_type; };
template <> struct k_int<8> { typedef int64_t type; typedef uint64_t unsigned_type; };
template <class T> struct k_of { static constexpr bool vector = true; };
#define K_SCALAR(T, F) template <> struct k_of<T> { static constexpr bool vector = false, floating = F; };
K_SCALAR(float, true) K_SCALAR(double, true) K_SCALAR(bool, false)
K_SCALAR(int8_t, false) K_SCALAR(int16_t, false) K_SCALAR(int32_t, false) K_SCALAR(int64_t, false)
K_SCALAR(uint8_t, false) K_SCALAR(uint16_t, false) K_SCALAR(uint32_t, false) K_SCALAR(uint64_t, false)
#undef K_SCALAR
// the type of one element of a scalar or vector type
template <class T, bool vector> struct k_element_of { typedef T type; };
template <class T> struct k_element_of<T, true> {
  typedef __typeof__((*(T*)0)[0]) reference;
  template <class U> struct bare { typedef U type; };
  template <class U> struct bare<U&> { typedef U type; };
  typedef typename bare<reference>::type type;
};
template <class T, int N> struct k_element_of<k_pair<T, N>, true> { typedef T type; };
template <class T> using k_element = typename k_element_of<T, k_of<T>::vector>::type;
template <class T> constexpr int k_width = sizeof(T) / sizeof(k_element<T>);
template <class T> constexpr bool k_floating = k_of<k_element<T>>::floating;
template <class T> constexpr bool k_signed = k_element<T>(-1) < k_element<T>(0);
template <class T> constexpr bool k_wide = false;
template <class T, int N> constexpr bool k_wide<k_pair<T, N>> = true;
template <class T> using k_mask = V<int32_t, k_width<T>>;  // booleans in lanes: 0 and -1
// what comparisons give: 0 and -1 in as many bytes as an element has
template <class T> using k_truths = V<typename k_int<sizeof(k_element<T>)>::type, k_width<T>>;

#define K_BOTH(TYPE, HEAD, LOW, HIGH) friend inline __attribute__((always_inline, unused)) TYPE HEAD { return TYPE(LOW, HIGH); }
#define K_ARITHMETIC(OP) \
  K_BOTH(k_pair, operator OP(k_pair a, k_pair b), a.low OP b.low, a.high OP b.high) \
  inline __attribute__((always_inline, unused)) k_pair& operator OP##=(k_pair b) { low = low OP b.low; high = high OP b.high; return *this; }
#define K_BITS(OP) K_BOTH(k_pair, operator OP(k_pair a, k_pair b), a.low OP b.low, a.high OP b.high)
#define K_COMPARED(OP) K_BOTH(truths, operator OP(k_pair a, k_pair b), (truth)(a.low OP b.low), (truth)(a.high OP b.high))
#define K_SHIFTED(OP) K_BOTH(k_pair, operator OP(k_pair a, int by), a.low OP by, a.high OP by)
template <class T, int N> struct k_pair {
  typedef V<T, N / 2> half;
  typedef V<typename k_int<sizeof(T)>::type, N> truths;
  typedef V<typename k_int<sizeof(T)>::type, N / 2> truth;
  half low, high;
  K_METHOD k_pair() : low(), high() {}
  K_METHOD k_pair(half a, half b) : low(a), high(b) {}
  K_METHOD k_pair(T x) : low(half{} + x), high(half{} + x) {}
  // the same bits
  template <class S> K_METHOD explicit k_pair(k_pair<S, N> x) : low((half)x.low), high((half)x.high) {}
  K_METHOD T& operator[](int i) { return ((T*)this)[i]; }
  K_METHOD T operator[](int i) const { return ((const T*)this)[i]; }
  K_ARITHMETIC(+) K_ARITHMETIC(-) K_ARITHMETIC(*) K_ARITHMETIC(/) K_BITS(&) K_BITS(|) K_BITS(^)
  K_COMPARED(==) K_COMPARED(!=) K_COMPARED(<) K_COMPARED(<=) K_COMPARED(>) K_COMPARED(>=) K_SHIFTED(<<) K_SHIFTED(>>)
  K_BOTH(k_pair, operator-(k_pair a), -a.low, -a.high) K_BOTH(k_pair, operator~(k_pair a), ~a.low, ~a.high)
};
#undef K_BOTH
#undef K_ARITHMETIC
#undef K_BITS
#undef K_COMPARED
#undef K_SHIFTED

// halves of any vector of two elements and more, and a vector of two halves
template <int... I> struct k_list {};
template <int N, int... I> struct k_range : k_range<N - 1, N - 1, I...> {};
template <int... I> struct k_range<0, I...> { typedef k_list<I...> type; };
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define K_SHUFFLED 1
template <class H, int at, class T, int... I> K_ONE H k_part(T v, k_list<I...>) { return (H)__builtin_shufflevector(v, v, at + I...); }
template <class T, class H, int... I> K_ONE T k_join(H a, H b, k_list<I...>) { return (T)__builtin_shufflevector(a, b, I...); }
#endif
template <class T> using k_half = V<k_element<T>, k_width<T> / 2>;
template <bool high, class T> K_ONE k_half<T> k_half_of(T v) {
  if constexpr (k_wide<T>) { if constexpr (high) return v.high; else return v.low; }
  else {
    constexpr int n = k_width<T> / 2;
#ifdef K_SHUFFLED
    if constexpr (n > 1) return k_part<k_half<T>, high ? n : 0>(v, typename k_range<n>::type{});
#endif
    k_half<T> out;
    __builtin_memcpy(&out, (const char*)&v + (high ? sizeof(out) : 0), sizeof(out));
    return out;
  }
}
template <class T, int N> K_ONE V<T, N> k_joined(V<T, N / 2> a, V<T, N / 2> b) {
  if constexpr (k_wide<V<T, N>>) return V<T, N>(a, b);
  else {
#ifdef K_SHUFFLED
    if constexpr (N > 2) return k_join<V<T, N>>(a, b, typename k_range<N>::type{});
#endif
    V<T, N> out;
    __builtin_memcpy(&out, &a, sizeof(a));
    __builtin_memcpy((char*)&out + sizeof(a), &b, sizeof(b));
    return out;
  }
}
// in memory
K_FN T k_get(const void* p) {
  if constexpr (k_wide<T>) return T(k_get<k_half<T>>(p), k_get<k_half<T>>((const char*)p + sizeof(T) / 2));
  else { T v; __builtin_memcpy(&v, p, sizeof(T)); return v; }
}
K_FN void k_put(void* p, T v) {
  if constexpr (k_wide<T>) { k_put(p, v.low); k_put((char*)p + sizeof(T) / 2, v.high); }
  else __builtin_memcpy(p, &v, sizeof(T));
}
// the elements as numbers of another type; whole numbers by sizes that are twice or half as large: compilers have no vectors for more
template <int B, bool is_signed> struct k_whole { typedef typename k_int<B>::type type; };
template <int B> struct k_whole<B, false> { typedef typename k_int<B>::unsigned_type type; };
// between floats and whole numbers of 8 bytes only AVX-512 has vectors
template <class S, class T> constexpr bool k_one_by_one =
    K_BYTES < 64 && k_floating<S> != k_of<T>::floating && (k_floating<S> ? sizeof(T) : sizeof(k_element<S>)) == 8;
// what fills no register of NEON's: of 8 bytes it has all, of fewer nothing; whole numbers become twice as large by one instruction
#ifdef __aarch64__
template <class T> constexpr bool k_tiny = k_of<T>::vector && k_width<T> > 1 && sizeof(T) < 8;
constexpr int k_least = 8;
#define K_LONGER(OP, TO, FROM) __asm__(OP " %0." TO ", %1." FROM : "=w"(out) : "w"(x))
template <class T, int N, class S> K_ONE V<T, N> k_longer(S v) {
  constexpr int from = sizeof(k_element<S>);
  V<k_element<S>, 8 / from> x;
  if constexpr (sizeof(v) == 8) x = v;
  else { V<uint32_t, 2> bits{}; __builtin_memcpy(&bits, &v, sizeof(v)); x = (V<k_element<S>, 8 / from>)bits; }
  V<T, 8 / from> out;
  if constexpr (k_signed<S>) {
    if constexpr (from == 1) K_LONGER("sxtl", "8h", "8b"); else if constexpr (from == 2) K_LONGER("sxtl", "4s", "4h"); else K_LONGER("sxtl", "2d", "2s");
  } else {
    if constexpr (from == 1) K_LONGER("uxtl", "8h", "8b"); else if constexpr (from == 2) K_LONGER("uxtl", "4s", "4h"); else K_LONGER("uxtl", "2d", "2s");
  }
  if constexpr (sizeof(v) == 8) return out; else return k_half_of<false>(out);
}
#undef K_LONGER
template <class T, int N, class S> constexpr bool k_lengthens = !k_floating<S> && !k_of<T>::floating && sizeof(T) == 2 * sizeof(k_element<S>)
    && (sizeof(S) == 8 || sizeof(S) == 4);
#else
template <class T> constexpr bool k_tiny = false;
constexpr int k_least = 16;
template <class T, int N, class S> constexpr bool k_lengthens = false;
template <class T, int N, class S> K_ONE V<T, N> k_longer(S);
#endif
template <class T, int N, class S> K_ONE V<T, N> k_as(S v) {
  constexpr int from = sizeof(k_element<S>), to = sizeof(T);
  if constexpr (__is_same(k_element<S>, T)) return v;
  else if constexpr (!k_floating<S> && !k_of<T>::floating && (to > 2 * from || from > 2 * to))
    return k_as<T, N>(k_as<typename k_whole<(to > from ? 2 * from : from / 2), k_signed<S>>::type, N>(v));
  else if constexpr (k_wide<S> || k_wide<V<T, N>> || (N > 2 && k_one_by_one<S, T>))
    return k_joined<T, N>(k_as<T, N / 2>(k_half_of<false>(v)), k_as<T, N / 2>(k_half_of<true>(v)));
  else if constexpr (k_lengthens<T, N, S>) return k_longer<T, N>(v);
  // no compiler has vectors of 8 bytes for that
  else if constexpr (N == 2) return V<T, N>{(T)v[0], (T)v[1]};
  else return __builtin_convertvector(v, V<T, N>);
}
// a where a comparison holds, else b
template <class M, class T> K_ONE T k_pick(M m, T a, T b) {
  if constexpr (k_wide<T>) return T(k_pick(m.low, a.low, b.low), k_pick(m.high, a.high, b.high));
  else if constexpr (k_tiny<T>) {
    uint32_t some = 0, x = 0, y = 0;
    __builtin_memcpy(&some, &m, sizeof(m));
    __builtin_memcpy(&x, &a, sizeof(a));
    __builtin_memcpy(&y, &b, sizeof(b));
    x = (x & some) | (y & ~some);
    __builtin_memcpy(&a, &x, sizeof(a));
    return a;
  }
  else return m ? a : b;
}
// numbers as comparisons can be had of them, and a > b
template <class T> K_ONE auto k_more(T x) {
  if constexpr (k_tiny<T>) return k_as<int32_t, k_width<T>>(x);
  else return x;
}
template <class T> K_ONE auto k_above(T a, T b) {
  if constexpr (k_tiny<T>) return k_as<k_element<k_truths<T>>, k_width<T>>(k_more(a) > k_more(b));
  else return a > b;
}
// sums and products of 8 bytes: NEON has no such products, and GCC makes one of x + x
template <class T> K_ONE T k_plus(T a, T b) {
#ifdef __aarch64__
  if constexpr (k_wide<T>) return T(k_plus(a.low, b.low), k_plus(a.high, b.high));
  else if constexpr (sizeof(k_element<T>) == 8 && k_width<T> == 2) {
    T out;
    __asm__("add %0.2d, %1.2d, %2.2d" : "=w"(out) : "w"(a), "w"(b));
    return out;
  } else
#endif
  return a + b;
}
template <class T> K_ONE T k_times(T a, T b) {
#ifdef __aarch64__
  if constexpr (k_wide<T>) return T(k_times(a.low, b.low), k_times(a.high, b.high));
  else if constexpr (!k_floating<T> && sizeof(k_element<T>) == 8 && k_width<T> == 2) return T{a[0] * b[0], a[1] * b[1]};
  else
#endif
  return a * b;
}
// a function of what fits a register
#define K_HALVES1(NAME) if constexpr (k_wide<T>) return T(NAME(x.low), NAME(x.high)); else
#define K_HALVES2(NAME) if constexpr (k_wide<T>) return T(NAME(a.low, b.low), NAME(a.high, b.high)); else
