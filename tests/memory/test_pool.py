from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.ids import NULL
from thalweg.memory.pool import Pool


@given(st.integers(1, 6), st.lists(st.tuples(st.sampled_from("asr"), st.integers(0, 9))))
def test_pool_counts_owners_like_a_list_of_them(size: int, program: list[tuple[str, int]]) -> None:
    pool, owners = Pool(size), list[int]()
    for name, i in program:
        if name == "a" and pool.num_free:
            new = pool.acquire()
            assert new not in owners and 0 < new < size
            owners.append(new)
        elif name == "s" and owners:
            owners.append(pool.share(owners[i % len(owners)]))
        elif name == "r" and owners:
            pool.release(owners.pop(i % len(owners)))
        counts = Counter(owners)
        assert pool.num_used == len(counts) and pool.num_free == size - 1 - len(counts)
        assert all(pool.exclusive(i) == (counts[i] == 1) for i in range(size))


def test_null_is_everyones_and_never_counted() -> None:
    pool = Pool(3)
    assert pool.share(NULL) == NULL
    pool.release(NULL)
    assert not pool.exclusive(NULL) and pool.num_used == 0
    assert {pool.acquire(), pool.acquire()} == {1, 2}


def test_releasing_or_sharing_a_free_id_is_our_bug() -> None:
    pool = Pool(3)
    i = pool.acquire()
    pool.release(i)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(i)
    with pytest.raises(AssertionError, match="free and cannot be shared"):
        pool.share(i)


def test_an_empty_pool_has_nothing_to_give() -> None:
    assert Pool(1).num_free == 0
    with pytest.raises(AssertionError):
        Pool(0)
