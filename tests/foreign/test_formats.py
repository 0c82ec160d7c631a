"""Reading and writing the formats of TASO, TENSAT and FlexFlow: nothing is lost, and what is damaged is refused."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.errors import DslcError
from dslc.foreign import flexflow, taso, tensat
from dslc.foreign.rule import KEYS, KINDS, ForeignRule, Operator, Output, RuleTensor
from tests.foreign.shaped import KERNEL, RIGHT, W4, X1, at, concat, conv, matmul, plain, rule, split
from tests.foreign.writers import flexflow_json, tensat_text

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@st.composite
def sides(draw: Any) -> tuple[Operator, ...]:
    operators: list[Operator] = []
    for position in range(draw(st.integers(1, 4))):
        tensors = st.builds(RuleTensor, st.integers(-20, position - 1), st.integers(0, 3))
        parameters = st.lists(st.tuples(st.sampled_from([*KEYS, "#77"]), INT32), max_size=4)
        kinds = st.sampled_from([*KINDS, "#99"])
        operators.append(Operator(draw(kinds), tuple(draw(st.lists(tensors, max_size=4))), tuple(draw(parameters))))
    return tuple(operators)


@st.composite
def foreign_rules(draw: Any) -> ForeignRule:
    source, target = draw(sides()), draw(sides())
    outputs = [
        Output(RuleTensor(draw(st.integers(0, len(source) - 1)), draw(st.integers(0, 3))),
               RuleTensor(draw(st.integers(-20, len(target) - 1)), draw(st.integers(0, 3))))
        for _ in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    return ForeignRule("", source, target, tuple(outputs))


@settings(max_examples=25)
@given(st.lists(foreign_rules(), max_size=3), st.text(max_size=8))
def test_taso_and_flexflow_lose_nothing(rules: list[ForeignRule], name: str) -> None:
    data = taso.write(rules)
    assert taso.read(data) == tuple(rules)
    assert taso.write(taso.read(data)) == data
    named = [replace(each, name=f"rule {k} {name}") for k, each in enumerate(rules)]
    written = flexflow_json(named)
    assert flexflow.read(written) == tuple(named)
    assert json.loads(flexflow_json(flexflow.read(written))) == json.loads(written)


@st.composite
def terms(draw: Any, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return "?" + draw(st.sampled_from(["input_1", "input_20", "x", "weights", "input_01", "y2"]))
    inner = terms(depth - 1)
    kind = draw(st.sampled_from(["ewadd", "matmul", "matmul 0", "conv2d 2 1 0 2", "concat 1", "concat 1 2", "smul"]))
    if draw(st.integers(0, 3)) == 0:
        one = draw(st.sampled_from(["(relu {})", "(transpose {})", "(transpose {} 1_0 0)", "(split_1 (split 0 {}))", "(tanh {})",
                                    "(poolavg {} 3 3 1 1 0 0)", "(enlarge 3 3 {})", "(merge {} 2)", "(reshape {} 2_3)"]))  # fmt: skip
        return one.format(draw(inner))
    return f"({kind} {draw(inner)} {draw(inner)})"


@given(st.lists(st.tuples(terms(), terms()), min_size=1, max_size=5))
def test_tensat_loses_nothing(pairs: list[tuple[str, str]]) -> None:
    lines = "".join(f"{a if a[0] == '(' else f'({a})'}=>{b if b[0] == '(' else f'({b})'}\n" for a, b in pairs).encode()
    rules = tensat.read(lines, pairs=False)
    assert len(rules) == len(pairs)
    assert tensat_text(rules) == lines
    if len(pairs) % 2 == 0:
        double = tensat.read(lines, pairs=True)
        assert [len(each.outputs) for each in double] == [2] * (len(pairs) // 2)
        assert tensat_text(double) == lines


def test_numbers_are_those_of_the_enumeration() -> None:
    numbers = {"conv2d": 3, "pool2d_max": 6, "pool2d_avg": 7, "relu": 8, "concat": 12, "split": 13, "transpose": 15, "ew_add": 16,
               "matmul": 18, "mul": 19, "enlarge": 20, "merge_gconv": 21, "constant_pool": 25, "squeeze": 26, "reduce_argmax": 35,
               "pad": 42, "fuse_conv_batchnorm": 58, "broadcast_add": 61}  # fmt: skip
    assert {name: KINDS.index(name) for name in numbers} == numbers
    keys = {"num_inputs": 1, "kernel_h": 4, "pad": 8, "acti": 9, "axis": 11, "outshuffle": 13, "merge_gconv_count": 14}
    assert {name: KEYS.index(name) for name in keys} == keys


def refused(read: Any, data: bytes) -> str:
    with pytest.raises(DslcError) as caught:
        read(data, "some.file")
    (finding,) = caught.value.diagnostics
    assert finding.code == "E1001"
    return finding.message


def test_a_file_that_is_cut_off_is_refused_or_ends_between_rules() -> None:
    rules = RIGHT[:3]
    data = taso.write(rules)
    ends = {len(taso.write(rules[:k])): k for k in range(4)}
    for length in range(len(data)):
        if length in ends:
            assert taso.read(data[:length]) == rules[: ends[length]]
        else:
            refused(taso.read, data[:length])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f", "cut off"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cut off"),
        (b"\x12\x00", "none of theirs"),
        (b"\x0a\x02\x0a\x05", "cut off"),
        (b"\x0a\x0b\x0a\x09\x09" + bytes(8), "none of theirs"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "not a file of TASO's rules"),
        (b"\x0a\x00", "no output is mapped"),
        (taso.write([ForeignRule("", (plain("relu", at(0)),), (), (Output(at(0), X1),))]), "does not come before it"),
        (taso.write([ForeignRule("", (plain("relu", X1),), (), (Output(at(0), at(7)),))]), "does not exist"),
        (taso.write([rule([plain("relu", *[X1] * 300)], [plain("relu", X1)])]), "more than 256"),
    ],
)
def test_hostile_protobuf(data: bytes, words: str) -> None:
    assert words in refused(taso.read, data)


@given(st.binary(max_size=200))
def test_any_bytes_are_rules_or_refused(data: bytes) -> None:
    for read in (taso.read, flexflow.read, tensat.read):
        try:
            read(data, "any")
        except DslcError as problem:
            assert [d.code for d in problem.diagnostics] == ["E1001"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        ("[" * 100_000, "nested too deep"),
        ('{"rule": 3}', "where a list should"),
        ('{"rule": [{"srcOp": []}]}', "without"),
        ('{"rule": [{"srcOp": [], "dstOp": [], "mappedOutput": [], "guard": 1}]}', "unknown entry `guard`"),
        ('{"_t": "Graph", "rule": []}', "RuleCollection"),
        ('{"rule": [{"srcOp": [{"type": "OP_RELU", "input": [{"opId": -1, "tsId": 1e3}], "para": []}], "dstOp": [],'
         ' "mappedOutput": []}]}', "where a number should"),
        ('{"rule": [{"srcOp": [{"type": "OP_RELU", "input": [{"opId": -99999999999, "tsId": 0}], "para": []}], "dstOp": [],'
         ' "mappedOutput": []}]}', "32 bits"),
    ],
)  # fmt: skip
def test_hostile_json(text: str, words: str) -> None:
    assert words in refused(flexflow.read, text.encode())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(relu ?x)=>", "line 1"),
        ("(relu ?x=>(relu ?x)", "line 1"),
        ("(relu ?x)=>(relu ?x) (relu ?x)", "after the rule"),
        ("(relu ?x)=>(relu 3)", "where a tensor should"),
        ("(conv2d 1 1 0 0 9 ?x ?w)=>(relu ?x)", "cannot have these"),
        ("(" * 5000 + "=>", "deep"),
        ("(relu ?x)=>(relu ?y)", "two lines are one rule"),
        ("relu(x)==", "the end"),
        ("relu(input_1)==relu(input_1)relu(", "after 1 equations"),
        ("(split_0 ?x)=>(relu ?x)", "wants a split"),
    ],
)
def test_hostile_text(text: str, words: str) -> None:
    assert words in refused(tensat.read, text.encode())


def test_tensat_pairs_of_lines_are_one_rule() -> None:
    """The form of a multi-pattern file; the targets use variables that their own sources lack."""
    text = (
        "(matmul 0 ?input_1 ?input_4)=>(split_0 (split 1 (matmul 0 ?input_1 (concat 1 2 ?input_4 ?input_5))))\n"
        "(matmul 0 ?input_1 ?input_5)=>(split_1 (split 1 (matmul 0 ?input_1 (concat 1 2 ?input_4 ?input_5))))\n"
    )
    (found,) = tensat.read(text.encode())
    joined = Operator("concat", (W4, RuleTensor(-5)), (("axis", 1), ("numdim", 2)))
    target = (joined, matmul(X1, at(0)), Operator("split", (at(1),), (("axis", 1),)))
    assert found.source == (matmul(X1, W4), matmul(X1, RuleTensor(-5)))
    assert found.target == target
    assert found.outputs == (Output(at(0), at(2)), Output(at(1), at(2, 1)))


def test_tensat_equations_run_together_and_have_older_names() -> None:
    text = (
        "matmul(matmul(input_1,input_4),input_5)==matmul(input_1,matmul(input_4,input_5))"
        "conv2d(1,1,0,2,conv2d(1,1,0,0,input_7,input_10),const_iconv(3,3))==conv2d(1,1,0,2,input_7,input_10)"
        "split_0(0,transpose(concat(1,input_1,input_2)))==transpose(input_1)"
        "pool2d_avg(3,3,1,1,0,input_8)==conv2d(1,1,0,0,input_8,const_pool(3,3))"
        "matmul(input_1,scalar_mul(const_imm,input_20))==scalar_mul(input_1,input_20)"
    )
    rules = tensat.read(text.encode())
    assert [tuple(each.kinds())[-1] for each in rules] == ["matmul", "conv2d", "transpose", "conv2d", "mul"]
    assert rules[3].source[0].parameters[-1] == ("pad", 0)
    assert tensat.read(tensat_text(rules)) == rules


def test_joined_outputs_are_several_outputs() -> None:
    (found,) = tensat.read(b"(noop (relu ?a) (tanh ?b))=>(noop (relu ?b) (tanh ?a))")
    assert len(found.outputs) == 2


def test_parallel_operators_are_read_by_name() -> None:
    tree = {"_t": "RuleTensor", "opId": -1, "tsId": 0}
    partition = {"_t": "Operator", "type": "OP_PARTITION", "input": [tree],
                 "para": [{"_t": "Parameter", "key": "PM_PARALLEL_DIM", "value": 2}]}  # fmt: skip
    data = {"_t": "RuleCollection", "rule": [{"_t": "Rule", "name": "taso_rule_0", "srcOp": [partition], "dstOp": [partition],
            "mappedOutput": [{"_t": "MapOutput", "srcOpId": 0, "srcTsId": 0, "dstOpId": 0, "dstTsId": 0}]}]}  # fmt: skip
    (found,) = flexflow.read(json.dumps(data).encode())
    assert found.source[0] == Operator("partition", (X1,), (("parallel_dim", 2),))
    assert json.loads(flexflow_json([found])) == data


def test_thousands_of_rules_are_read_in_seconds() -> None:
    rules = [RIGHT[k % len(RIGHT)] for k in range(6_000)]
    data = taso.write(rules)
    start = time.process_time()
    assert len(taso.read(data)) == 6_000
    assert time.process_time() - start < 1.5
    text = tensat_text([r for r in rules if len(r.outputs) == 1][:1_500])
    start = time.process_time()
    assert len(tensat.read(text)) == 1_500
    assert time.process_time() - start < 2.25


def test_what_a_format_cannot_say() -> None:
    cases = [
        (taso.write, rule([plain("no_such", X1)], [plain("relu", X1)])),
        (taso.write, rule([replace(conv(X1, KERNEL), parameters=(("pad", "?pad"),))], [plain("relu", X1)])),
        (tensat_text, rule([concat(0, 2, *[X1] * 6)], [plain("relu", X1)])),
        (tensat_text, rule([split(0, X1)], [split(0, X1)], *[(at(0), at(0))] * 3)),
    ]
    for write, each in cases:
        with pytest.raises(DslcError) as caught:
            write([each])
        assert [d.code for d in caught.value.diagnostics] == ["E1002"]
