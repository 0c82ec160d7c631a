"""The kinds of lists and of the functions on them: what has its entries for which axes. docs/proofs.md, "Ranks", Lemma 3."""

from __future__ import annotations

from typing import Any

from dslc.prove.ranks.kinds import (
    LOOSE,
    Count,
    Entries,
    Every,
    Linear,
    Loose,
    Number,
    One,
    Places,
    Rest,
    Reversed,
    Segments,
    Spaces,
    Tensor,
    Truth,
    Unnatural,
)

NUMBER = Number()
ONE: Segments = (One(),)


class Lists:
    """Functions of lists; `f_name` is that of the language's `name`. What they raise is Unnatural."""

    spaces: Spaces
    #: whether a product of sizes occurs
    folds: bool
    #: whether axes are picked, or lists for axes permuted, cut or ravelled: what that does shows at rank 2
    shown: bool
    #: whether it matters which position an axis has: then two of them tell more than rank 2 does
    apart: bool
    #: whether a guard is looked at, of which it need not be known what it says of fewer axes
    guarding: bool

    def segments(self, value: Any) -> Segments:
        if isinstance(value, Number):
            return ()
        if not isinstance(value, Entries | Places | Every | Tensor):
            raise Unnatural("no list")
        return self.spaces.normal(value.segments)

    def number(self, value: Any) -> Number:
        if isinstance(value, Tensor) and not self.segments(value):
            return NUMBER
        if isinstance(value, Truth):
            self.spaces.loosen()
            return NUMBER
        if not isinstance(value, Number):
            raise Unnatural("a list, a position or a number of axes where a number is expected")
        return value

    def together(self, values: list[Any]) -> Number | Entries:
        """Numbers and lists, elementwise."""
        lists = [value for value in values if isinstance(value, Entries)]
        folded = any(self.number(value).folded for value in values if not isinstance(value, Entries))
        if not lists:
            return Number(folded)
        if folded:
            self.spaces.loosen()
        segments = self.segments(lists[0])
        for other in lists[1:]:
            segments = self.spaces.unify(segments, self.segments(other), equal_length=True)
        return Entries(segments)

    def f_rank(self, value: Any) -> Count:
        return Count(self.segments(value))

    f_len = f_rank

    def f_take(self, values: Any, count: Any) -> Entries:
        """The entries in front, for as many axes as there are of some."""
        front, _ = self.halves(values, count)
        return Entries(front)

    def f_drop(self, values: Any, count: Any) -> Entries:
        _, back = self.halves(values, count)
        return Entries(back)

    def halves(self, values: Any, count: Any) -> tuple[Segments, Segments]:
        if not isinstance(count, Count) or not isinstance(values, Entries):
            raise Unnatural("a list that is cut at a number")
        self.shown = True
        segments, front = self.segments(values), self.spaces.normal(count.segments)
        same = front and Loose() not in front and segments[: len(front)] == front
        if not same and values.given and front and One() not in front:
            return self.spaces.loosen(), LOOSE
        if not same:
            raise Unnatural("a list that is cut elsewhere")
        return front, segments[len(front) :]

    def f_shape(self, value: Any) -> Entries:
        if not isinstance(value, Tensor):
            raise Unnatural("the shape of no tensor")
        return Entries(value.segments, True, value.flat)

    def f_range(self, *ends: Any) -> Every | Places:
        self.shown = True
        if len(ends) == 1 and isinstance(ends[0], Count):
            return Every(ends[0].segments)
        counted = [isinstance(end, Count | Linear) for end in ends]
        if not any(counted) or not all(one or isinstance(end, Number) for one, end in zip(counted, ends, strict=True)):
            raise Unnatural("positions by their numbers")
        return Places(self.spaces.loosen(), LOOSE)

    def f_reversed(self, value: Any) -> Entries | Places:
        self.shown = True
        turned: Segments = (Reversed(self.segments(value)),)
        if isinstance(value, Every):
            return Places(turned, value.segments)
        if isinstance(value, Places):
            return Places(turned, value.target)
        if isinstance(value, Entries):
            return Entries(turned, value.sizes)
        raise Unnatural("no list")

    def f_all(self, value: Any) -> Truth:
        if not isinstance(value, Entries | Number | Truth):
            raise Unnatural("no list of conditions")
        return Truth()

    def f_any(self, value: Any) -> Truth:
        self.spaces.loosen()
        return self.f_all(value)

    def f_prod(self, value: Any) -> Number:
        if isinstance(value, Entries) and self.flat(value):
            return NUMBER
        if not isinstance(value, Entries) or not (value.sizes or (self.guarding and value.given)):
            raise Unnatural("a product of what is no size")
        self.folds = True
        return Number(folded=True)

    def f_broadcast(self, *values: Any) -> Entries:
        lists = []
        for value in values:
            if not isinstance(value, Entries):
                raise Unnatural("no list of sizes")
            lists.append(Entries(self.segments(value), value.sizes, self.flat(value)))
        longest = max(lists, key=lambda value: len(value.segments))
        segments = longest.segments
        for value in lists:
            # shorter lists are aligned on the right
            if value.segments and self.spaces.unify(longest.segments[-len(value.segments) :], value.segments) == LOOSE:
                segments = LOOSE
        return Entries(
            self.spaces.normal(segments), all(value.sizes for value in lists), all(value.flat for value in lists)
        )

    def flat(self, value: Entries) -> bool:
        """Whether the entries for axes are ones."""
        return value.flat or self.fixed(value)

    def f_ravel(self, index: Any, shape: Any) -> Number:
        """A position among all elements, on which axes of size 1 have no influence."""
        if not isinstance(index, Entries) or not isinstance(shape, Entries):
            raise Unnatural("no lists")
        self.shown = True
        if not self.flat(shape):
            self.spaces.loosen()
        self.spaces.unify(index.segments, shape.segments, equal_length=True)
        return NUMBER

    def f_unravel(self, position: Any, shape: Any) -> Entries:
        if not isinstance(shape, Entries):
            raise Unnatural("no list")
        self.shown = True
        if not self.flat(shape):
            self.spaces.loosen()
        self.number(position)
        return Entries(shape.segments)

    def f_fit(self, index: Any, shape: Any) -> Entries:
        if not isinstance(index, Entries) or not isinstance(shape, Entries):
            raise Unnatural("no lists")
        segments = self.segments(shape)
        if not segments:
            return Entries(())
        return Entries(self.spaces.unify(self.segments(index)[-len(segments) :], segments))

    def f_permute(self, values: Any, by: Any) -> Entries | Places:
        self.shown = True
        if isinstance(by, Entries) and isinstance(values, Entries) and self.fixed(by):
            # of places that are no axes
            return Entries(self.spaces.unify(by.segments, values.segments), values.sizes)
        if isinstance(by, Every):
            return self.entries(values, by.segments)
        if not isinstance(by, Places):
            raise Unnatural("no permutation")
        values = self.entries(values, None)
        self.spaces.aim(by, self.segments(values), equal_length=True)
        return self.like(values, by.segments)

    def f_unpermute(self, values: Any, by: Any) -> Entries | Places:
        self.shown = True
        if isinstance(by, Entries):
            return self.f_permute(values, by)
        if isinstance(by, Every):
            return self.entries(values, by.segments)
        if not isinstance(by, Places):
            raise Unnatural("no permutation")
        values = self.entries(values, by.segments)
        self.spaces.unify(self.segments(values), by.segments, equal_length=True)
        return self.like(values, self.spaces.target(by))

    def entries(self, values: Any, segments: Segments | None) -> Entries | Places:
        """A list; that of all positions as a list of positions in itself, whichever of as many entries that is."""
        if isinstance(values, Every):
            own = values.segments
            if segments is not None and self.spaces.as_many(own, segments):
                own = segments
            return Places(own, own)
        if not isinstance(values, Entries | Places):
            raise Unnatural("no list")
        return values

    def like(self, values: Entries | Places, segments: Segments) -> Entries | Places:
        if isinstance(values, Places):
            return Places(segments, values.target)
        return Entries(segments, values.sizes)

    def f_only(self, values: Any, by: Any) -> Entries | Places:
        values, by = self.picked(values, by)
        return self.like(values, by.segments)

    def f_without(self, values: Any, by: Any) -> Entries | Places:
        values, by = self.picked(values, by)
        return self.like(values, (Rest(self.segments(values), by.segments),))

    def picked(self, values: Any, by: Any) -> tuple[Entries | Places, Places]:
        """A list, and positions in it."""
        self.shown = True
        values = self.entries(values, None)
        by = self.positions(by, self.segments(values))
        self.spaces.aim(by, self.segments(values))
        return values, by

    def positions(self, by: Any, segments: Segments | None) -> Places:
        """A list of axes; of numbers that are written out it is not followed which axes these are."""
        if isinstance(by, Entries) and self.fixed(by):
            return Places(self.spaces.loosen(), LOOSE)
        by = self.entries(by, segments)
        if not isinstance(by, Places):
            raise Unnatural("no list of axes")
        return by

    def fixed(self, value: Entries) -> bool:
        """Whether no entry is one for axes."""
        return all(isinstance(each, One) for each in self.segments(value))

    def f_merge(self, rest: Any, chosen: Any, by: Any) -> Entries:
        self.shown = True
        by = self.positions(by, None)
        if not isinstance(rest, Entries):
            raise Unnatural("no list")
        target = self.spaces.target(by)
        self.spaces.unify(rest.segments, (Rest(target, by.segments),))
        if isinstance(chosen, Entries):
            self.spaces.unify(chosen.segments, by.segments)
            return Entries(target, rest.sizes and chosen.sizes)
        if self.number(chosen).folded:
            self.spaces.loosen()
        return Entries(target)
