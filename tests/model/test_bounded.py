"""What a bounded map keeps and what it forgets."""

from webhook.model.bounded import Bounded


def kept(items: Bounded, keys: str) -> str:
    return "".join(key for key in keys if key in items._items)


def test_what_nobody_asked_for_goes_first() -> None:
    items = Bounded(3)
    for key in "abc":
        items.put(key, key.upper())
    items.put("d", "D")  # all were new since: the oldest goes
    assert kept(items, "abcd") == "bcd"
    assert items.get("b") == "B"
    items.put("e", "E")
    assert kept(items, "abcde") == "bde"
    assert items.get("c") is None


def test_a_newcomer_finds_a_place_where_all_others_are_asked_for() -> None:
    items = Bounded(3)
    for key in "abcdefg":
        items.put(key, key)
        for other in "abcdefg":
            items.get(other)
        assert items.get(key) == key
        assert len(items) <= 3


def test_weight_counts() -> None:
    items = Bounded(10)
    items.put("a", 1, 4)
    items.put("a", 2, 6)
    items.put("b", 3, 4)
    assert (items.get("a"), items.get("b")) == (2, 3)
    items.put("c", 4, 1)
    assert len(items) == 2
    items.put("b", 5, 100)  # what weighs more than all may is not kept
    assert kept(items, "abc") == "c"
    items.grow("c", 3)
    assert (items.get("c"), items._weight) == (4, 4)
    items.grow("c", 10)
    assert (kept(items, "abc"), items._weight) == ("", 0)
    items.clear()
    assert len(items) == 0
