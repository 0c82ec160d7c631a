"""Enumerations on a Dask cluster: the same result as on this machine, also where a worker dies in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import taso

from dslc.errors import DslcError
from dslc.generate.enumeration.evaluation import EnumerationState, TupleChunk
from dslc.generate.enumeration.levels import Enumeration, Enumerator
from dslc.generate.enumeration.mappers import Mapper, mapper_for, on_cluster, serial
from dslc.generate.library import generate
from dslc.generate.proofs import library_text
from dslc.generate.settings import GenerationSettings
from dslc.generate.terms.inputs import Family, InputSizes, families
from dslc.interpret.domain import Array

distributed = pytest.importorskip("distributed")


def family() -> Family:
    rules = taso()
    names = ("ewadd", "matmul", "transpose")
    (found,) = families(rules, [rules.operators[f"taso.{name}"] for name in names], InputSizes(count=2))
    return found


def enumerated(mapper: Mapper) -> Enumeration:
    return Enumerator(taso(), ("taso",), family(), 3, mapper=mapper).run()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers; the last test that uses them ends one."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit="1GB"
    ) as started:
        yield started


@pytest.fixture(scope="module")
def local() -> Enumeration:
    return enumerated(serial)


def same(a: Enumeration, b: Enumeration) -> bool:
    return list(map(str, a.equations())) == list(map(str, b.equations())) and np.array_equal(a.left, b.left)


def test_a_whole_library_from_a_cluster_is_the_local_one(cluster: Any) -> None:
    settings = GenerationSettings(operators=("ewadd", "transpose"), max_operators=2, provers=1)
    far = generate(replace(settings, scheduler=cluster.scheduler_address))
    near = generate(replace(settings, provers=0))
    texts = [library_text(one.rules, one.found, [], one.statuses) for one in (far, near)]
    assert texts[0] == texts[1]
    assert near.found
    assert [far.statuses[rule] for rule in far.found] == [near.statuses[rule] for rule in near.found]


def test_a_worker_dies_and_the_result_is_the_same(cluster: Any, local: Enumeration) -> None:
    with distributed.Client(cluster) as client:
        plain = on_cluster(client)
        killed: list[int] = []

        def with_a_death(state: EnumerationState, chunks: Iterable[TupleChunk]) -> Iterator[Array]:
            for k, result in enumerate(plain(state, chunks)):
                if k == 1 and not killed:
                    pid = next(iter(client.run(os.getpid).values()))
                    killed.append(pid)
                    # never the process of these tests
                    assert pid != os.getpid()
                    os.kill(pid, signal.SIGKILL)
                yield result

        found = enumerated(with_a_death)
    assert len(killed) == 1
    assert same(found, local)
    assert len(found) > 0


def test_without_dask_or_a_scheduler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    client = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, timeout: client(address, timeout="0.2s"))
    with (
        pytest.raises(DslcError, match="no scheduler answers at"),
        mapper_for(GenerationSettings(scheduler="tcp://127.0.0.1:9")),
    ):
        raise AssertionError("a scheduler answered")


def test_a_single_process_needs_no_cluster() -> None:
    with mapper_for(GenerationSettings(max_operators=4)) as mapper:
        assert mapper is serial
