"""Constant tables: contracted before products are expanded, so that minimal filtering is proved at unknown sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import input_value
from dslc.ir.scalar import Table, apply, iterator, num, read, reduce, walk
from dslc.prove.exact.tables import without_tables
from dslc.prove.run.provers import exact_verdict
from dslc.prove.verdict import Verdict
from dslc.semantics.library import load, standard

AFTER = "[[1, 1, 1, 0], [0, 1, -1, -1]]"
#: F(2, 3) along a line, with the sum that it stands for
LINE = """dslc 1
let A(m) = {after}
let B(m) = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
let W(m) = [[1, 0, 0], [1/2, 1/2, 1/2], [1/2, -1/2, 1/2], [0, 0, 1]]
operator direct(S: T[L, C], R: T[3, C]) -> Z: T[L - 2] {{
  where floating(T)
  Z[l] = sum[c: C, k: 3] S[l + k, c] * R[k, c]
}}
operator tiles(S: T[L, C], R: T[3, C]) -> Z: T[L - 2] {{
  where floating(T)
  let V[t: ceildiv(L - 2, 2), c: C, e: 4] = sum[i: 4] B(2)[e, i] * S[2 * t + i, c, other=0]
  Z[l] = sum[e: 4] A(2)[l % 2, e] * (sum[c: C] V[l // 2, c, e] * (sum[k: 3] W(2)[e, k] * R[k, c]))
}}
substitution filter(S: T[L, C], R: T[3, C]) -> Z {{
  Z = direct(S, R)
  =>
  Z = tiles(S, R)
}}
"""


def verdict(tmp_path: Path, after: str = AFTER) -> Verdict:
    file = tmp_path / "line.rules"
    file.write_text(LINE.format(after=after), encoding="utf-8")
    rules = load(file)
    return exact_verdict(rules, rules.substitutions["line.filter"], 4.0)


def test_filtering_is_proved_at_unknown_sizes(tmp_path: Path) -> None:
    assert verdict(tmp_path).answer == "equal"
    for name in ("winograd", "winograd_dilated", "winograd_of_row_dilated_by_4"):
        found = exact_verdict(standard(), standard().substitutions[f"std.{name}"], 10.0)
        assert (found.answer, found.scope) == ("equal", "")


@pytest.mark.parametrize("after", ["[[1, 1, 1, 0], [0, 1, -1, 1]]", "[[1, 1, -1, 0], [0, 1, -1, -1]]"])
def test_one_wrong_sign_is_seen(tmp_path: Path, after: str) -> None:
    assert verdict(tmp_path, after).answer != "equal"


def test_what_is_left_is_a_condition() -> None:
    """`sum[a] A[u, a] B[a, i]` with B the inverse of A is `[i == u]`."""
    x = input_value("x", TensorType(DType.F32, (2,)))
    u, a, i = iterator("u"), iterator("a"), iterator("i")
    tables = Table._make((u, a), ((2, 1), (1, 1))), Table._make((a, i), ((1, -1), (-1, 2)))
    whole = reduce("sum", (a, i), (num(2), num(2)), apply("*", *tables, read(0, (i,))))
    (found,) = without_tables([whole], {u: num(2), a: num(2), i: num(2)}, [x])
    assert not any(isinstance(node, Table) for node in walk(found)) and a not in {
        it for node in walk(found) for it in node.free
    }
    assert "i == u" in str(found)
    # what is divided by must not be 0, also where a table is
    divided = reduce("sum", (a, i), (num(2), num(2)), apply("*", *tables, apply("/", num(1), read(0, (i,)))))
    assert without_tables([divided], {u: num(2), a: num(2), i: num(2)}, [x]) == [divided]
    # over integers nothing is done, and a table of its own stays
    ints = input_value("x", TensorType(DType.I32, (2,)))
    assert without_tables([whole], {}, [ints]) == [whole]
    single = reduce("sum", (a,), (num(2),), apply("*", tables[0], read(0, (a,))))
    assert without_tables([single], {}, [x]) == [single]
