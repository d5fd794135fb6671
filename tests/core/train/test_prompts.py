from core.tasks.base import Prompt
from core.train.prompts import Cursor

POOL = [Prompt(f"{i}=?", str(i)) for i in range(10)]


def texts(prompts):
    return [prompt.text for prompt in prompts]


def test_every_prompt_once_an_epoch_in_a_new_order():
    cursor = Cursor(POOL, seed=1)
    epochs = [texts(cursor.take(5) + cursor.take(5)) for _ in range(3)]
    assert all(sorted(epoch) == sorted(texts(POOL)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert texts(Cursor(POOL, seed=1).take(10)) == epochs[0]
    assert texts(Cursor(POOL, seed=2).take(10)) != epochs[0]


def test_no_step_holds_a_prompt_twice_and_none_is_lost():
    cursor = Cursor(POOL, seed=0)
    seen = []
    for _ in range(20):
        step = texts(cursor.take(7))
        assert len(set(step)) == 7
        seen += step
    counts = [seen.count(text) for text in texts(POOL)]
    assert sum(counts) == 140
    assert max(counts) - min(counts) <= 1


def test_refills_avoid_what_the_step_has_until_the_pool_is_empty():
    cursor = Cursor(POOL, seed=0)
    first = cursor.take(6)
    refill = cursor.take(6, taken=[prompt.id for prompt in first])
    assert len(refill) == 4
    assert not {p.id for p in first} & {p.id for p in refill}
    assert cursor.take(3, taken=[p.id for p in POOL]) == []


def test_restored_cursor_continues_as_if_never_stopped():
    cursor = Cursor(POOL, seed=4)
    for _ in range(5):
        cursor.take(7)
    other = Cursor(POOL, seed=4)
    other.restore(cursor.state())
    for _ in range(5):
        assert texts(cursor.take(7)) == texts(other.take(7))


def test_a_pool_with_a_repeated_text_still_fills_steps():
    cursor = Cursor([Prompt("1=?", "1"), Prompt("1=?", "1"), Prompt("2=?", "2")], seed=0)
    for _ in range(4):
        assert sorted(texts(cursor.take(2))) == ["1=?", "2=?"]
