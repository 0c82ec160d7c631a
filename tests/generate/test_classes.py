"""Terms by value: what is replaced inside a term is as what is made anew."""

from __future__ import annotations

from functools import partial

from handmade import taso

from dslc.generate.enumeration.levels import Enumerator
from dslc.generate.pruning.derivability import Classes, family_inputs
from dslc.generate.terms.inputs import InputSizes, families
from dslc.generate.terms.term import outputs, substitute

OPERATORS = ("matmul", "ewadd", "transpose", "concat", "split")


def test_a_part_is_replaced_as_if_the_term_were_made_anew() -> None:
    (family,) = families(taso(), [taso().operators[f"taso.{name}"] for name in OPERATORS], InputSizes())
    classes = Classes(taso(), family_inputs(family.inputs))
    equations = list(Enumerator(taso(), ("taso",), family, 2).run().equations())
    for equation in equations:
        classes.add(equation)
    build = partial(outputs, taso())
    compared = 0
    for equation in equations:
        term = classes.rebuilt(equation.right)
        for part in term.below:
            for new in classes.ways(part):
                anew = classes.rebuilt(substitute((term,), {part: new}, build)[0])
                assert classes.replaced(term, part, new) is anew
                compared += new is not part
    assert compared > 50


def test_terms_without_constants_represent_their_values() -> None:
    names = ("ewadd", "ewmul", "matmul", "I_ewmul", "I_matmul")
    (family,) = families(taso(), [taso().operators[f"taso.{name}"] for name in names], InputSizes(count=2))
    found = Enumerator(taso(), ("taso",), family, 2).run()
    shown = {str(equation) for equation in found.equations()}
    # A + A * A is A * (A + 1): what has the 1 is the other side, and larger terms are built from what has none
    assert any("I_ewmul" in text.split(" == ")[1] and "I_ewmul" not in text.split(" == ")[0] for text in shown)
    represented = [found.reader.term(row) for row in range(len(found.table))]
    of_two = [e for e in found.equations() if e.right.size == 2 and e.left.size == 2]
    assert of_two and all(e.left in represented for e in of_two)
    assert not any("I_" in str(e.left) and "I_" not in str(e.right) for e in of_two)
