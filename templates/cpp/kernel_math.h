K_LANEWISE(exp) K_LANEWISE(log) K_LANEWISE(log1p) K_LANEWISE(tanh) K_LANEWISE(erf) K_LANEWISE(sin) K_LANEWISE(cos)
K_LANEWISE(sqrt) K_LANEWISE(ceil) K_LANEWISE(trunc) K_LANEWISE(floor)
K_FN T k_round(T x) { if constexpr (k_of<T>::vector) return k_lanewise(x, (k_element<T> (*)(k_element<T>))k_one_rint); else return k_one_rint(x); }
