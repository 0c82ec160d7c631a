"""The only door to isl. Dimensions have names; a set is a conjunction of affine constraints over integers.

`is_empty` answers a single question. A `Frame` makes parametric sets and maps over named unknowns: its objects are isl's own, which
know how to intersect, compose and subtract; what they share is one list of parameters, so that they always fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Literal

from dslc.records import record

MOST_OPERATIONS = 1_000_000  #: operations that a proof may take (about a second); beyond, it counts as not proved


Kind = Literal[">=", "=="]


class GivenUp(Exception):
    """isl needed more operations than it was allowed."""


@record
class Constraint:
    """`sum(coefficient * variable) + constant >= 0`, or `== 0`."""

    terms: tuple[tuple[str, int], ...]
    constant: int
    kind: Kind = ">="

    def __str__(self) -> str:
        parts = [f"{coefficient}*{name}" for name, coefficient in self.terms]
        kind = ">=" if self.kind == ">=" else "="
        return f"{' + '.join([*parts, str(self.constant)])} {kind} 0"


@cache
def is_empty(variables: tuple[str, ...], constraints: tuple[Constraint, ...]) -> bool:
    """Return whether no integer point satisfies all constraints; False beyond isl's operation limit."""
    import islpy

    _context().reset_operations()
    try:
        return bool(_set(variables, constraints).is_empty())
    except islpy.Error:
        return False


def _set(variables: tuple[str, ...], constraints: tuple[Constraint, ...]) -> Any:
    import islpy

    # matrices of coefficients, the constant first: isl takes ten times as long to read text
    place = {name: k for k, name in enumerate(variables, 1)}

    def matrix(kind: str) -> Any:
        rows = [each for each in constraints if each.kind == kind]
        out = islpy.Mat.alloc(_context(), 0, len(variables) + 1).add_zero_rows(len(rows))
        for at, each in enumerate(rows):
            terms: dict[int, int] = {0: each.constant}
            for name, coefficient in each.terms:
                terms[place[name]] = terms.get(place[name], 0) + coefficient
            for column, coefficient in terms.items():
                if coefficient:
                    out = out.set_element_val(at, column, _number(coefficient))
        return out

    space = islpy.Space.set_alloc(_context(), 0, len(variables))
    kinds = islpy.dim_type
    return islpy.BasicSet.from_constraint_matrices(
        space, matrix("=="), matrix(">="), kinds.cst, kinds.param, kinds.set, kinds.div
    )


@lru_cache(maxsize=1024)
def _number(value: int) -> Any:
    import islpy

    # as text, since numbers may have more than 64 bits
    return islpy.Val(str(value), context=_context())


@cache
def _context() -> Any:
    import islpy

    context = islpy.Context()
    context.set_max_operations(MOST_OPERATIONS)
    return context


# ---- parametric sets and maps ----------------------------------------------------------------------------------------


@cache
def _maps_context() -> Any:
    import islpy

    return islpy.Context()


@contextmanager
def limited(operations: int) -> Iterator[None]:
    """Raises GivenUp where what is done inside takes isl more than so many operations (a million are about a second)."""
    import islpy

    context = _maps_context()
    context.set_max_operations(operations)
    context.reset_operations()
    try:
        yield
    except islpy.Error as problem:
        # a number that cannot be made any more is reported in other words
        if any(sign in str(problem) for sign in ("operations", "quota", "failed to create arg")):
            raise GivenUp("isl needs too many operations") from None
        raise
    finally:
        context.set_max_operations(0)


def coalesced(what: Any) -> Any:
    """A set or a map as fewer pieces; as it is where isl fails to find them (its tableaus may come out of step)."""
    import islpy

    try:
        return what.coalesce()
    except islpy.Error:
        return what


class Frame:
    """Sets and maps over one list of parameters. A position of `n` dimensions is given by their numbers, 0 to n - 1."""

    def __init__(self, parameters: Sequence[str]) -> None:
        import islpy

        self.parameters = tuple(parameters)
        self._isl: Any = islpy
        self._zeros: dict[int, Any] = {}
        self._moves: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._orders: dict[tuple[int, int, int, bool], Any] = {}

    def _space(self, count: int) -> Any:
        isl, context = self._isl, _maps_context()
        space = isl.Space.set_alloc(context, len(self.parameters), count)
        for k, name in enumerate(self.parameters):
            space = space.set_dim_id(isl.dim_type.param, k, isl.Id(name, context=context))
        return space

    def affine(self, count: int, dims: Mapping[int, int], parameters: Mapping[int, int], number: int) -> Any:
        """`sum(c * dim) + sum(c * parameter) + number`, by positions."""
        isl = self._isl
        zero = self._zeros.get(count)
        if zero is None:
            zero = self._zeros[count] = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self._space(count)))
        for at, coefficient in dims.items():
            zero = zero.set_coefficient_val(isl.dim_type.in_, at, coefficient)
        for at, coefficient in parameters.items():
            zero = zero.set_coefficient_val(isl.dim_type.param, at, coefficient)
        return isl.PwAff.from_aff(zero.set_constant_val(number))

    def times(self, function: Any, number: int) -> Any:
        return function.scale_val(self._isl.Val.int_from_si(_maps_context(), number))

    def quotient(self, function: Any, number: int) -> Any:
        """Rounded down."""
        return function.scale_down_val(self._isl.Val.int_from_si(_maps_context(), number)).floor()

    def remainder(self, function: Any, number: int) -> Any:
        return function.mod_val(self._isl.Val.int_from_si(_maps_context(), number))

    def universe(self, count: int) -> Any:
        return self._isl.Set.universe(self._space(count))

    def empty(self, count: int) -> Any:
        return self._isl.Set.empty(self._space(count))

    def relation(self, domain: Any, functions: Sequence[Any]) -> Any:
        """The map from every point of a set to the values of the functions there."""
        isl = self._isl
        total = isl.Map.from_domain(domain)
        for function in functions:
            total = total.flat_range_product(isl.Map.from_pw_aff(function))
        return total

    def move(self, count: int, order: tuple[int, ...]) -> Any:
        """The map of `count` dimensions to those of them that `order` lists."""
        found = self._moves.get((count, order))
        if found is None:
            functions = [self.affine(count, {at: 1}, {}, 0) for at in order]
            found = self._moves[count, order] = self.relation(self.universe(count), functions)
        return found

    def drop(self, what: Any, start: int, count: int) -> Any:
        """A set, or the domain of a map, without some dimensions (their values exist)."""
        isl = self._isl
        kind = isl.dim_type.set if isinstance(what, isl.Set) else isl.dim_type.in_
        return what.project_out(kind, start, count) if count else what

    def dims(self, what: Any) -> int:
        """The number of dimensions of a set, or of the range of a map."""
        isl = self._isl
        return int(what.dim(isl.dim_type.set if isinstance(what, isl.Set) else isl.dim_type.out))

    def extended(self, domain: Any, count: int) -> Any:
        """The set with so many more dimensions, which may have any value."""
        return domain.add_dims(self._isl.dim_type.set, count) if count else domain

    def descending(self, count: int, start: int, width: int) -> Any:
        """The points at which the `width` dimensions from `start` are lexicographically larger than the `width` after them."""
        key = (count, start, width, True)
        found = self._orders.get(key)
        if found is None:
            same, found = self.universe(count), self.empty(count)
            for k in range(start, start + width):
                difference = self.affine(count, {k: 1, k + width: -1}, {}, 0)
                found = found.union(same.intersect(difference.pos_set()))
                same = same.intersect(difference.zero_set())
            self._orders[key] = found
        return found

    def repeated(self, count: int, start: int, width: int) -> Any:
        """The points at which the `width` dimensions from `start` are those after them."""
        key = (count, start, width, False)
        found = self._orders.get(key)
        if found is None:
            found = self.universe(count)
            for k in range(start, start + width):
                found = found.intersect(self.affine(count, {k: 1, k + width: -1}, {}, 0).zero_set())
            self._orders[key] = found
        return found

    def single_piece(self, function: Any) -> tuple[dict[int, int], int] | None:
        """A function of the parameters alone as coefficients and a number; None where it is not affine with whole numbers."""
        pieces: list[Any] = []
        function.foreach_piece(lambda where, aff: pieces.append(aff))
        if len(pieces) != 1 or pieces[0].dim(self._isl.dim_type.div):
            return None
        aff = pieces[0]
        numbers = [aff.get_coefficient_val(self._isl.dim_type.param, k) for k in range(len(self.parameters))]
        constant = aff.get_constant_val()
        if not all(number.is_int() for number in (*numbers, constant)):
            return None
        return {k: number.to_python() for k, number in enumerate(numbers) if not number.is_zero()}, constant.to_python()

    def point(self, relation: Any) -> tuple[dict[str, int], list[int], list[int]] | None:
        """Some parameters, a point and one of its images; None where the map is empty."""
        isl = self._isl
        sample = relation.wrap().sample_point()
        if sample.is_void():
            return None
        names = {
            name: int(sample.get_coordinate_val(isl.dim_type.param, k).to_python())
            for k, name in enumerate(self.parameters)
        }
        count = relation.dim(isl.dim_type.in_)
        values = [
            int(sample.get_coordinate_val(isl.dim_type.set, k).to_python())
            for k in range(count + relation.dim(isl.dim_type.out))
        ]
        return names, values[:count], values[count:]
