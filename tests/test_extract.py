"""One extraction at two strictness levels, with errors that name line and column."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import extract


def error(text: str) -> str:
    with pytest.raises(extract.NotJSON) as caught:
        extract.strict(text)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}', ' \n{"a": 1}\n', '\ufeff{"a": 1}', '```json\n{"a": 1}\n```', '```json {"a": 1}```', '```{"a": 1}```', '~~~\n{"a": 1}\n~~~',
        '~~~\njson\n{"a": 1}\n~~~', '```JSON\r\n{"a": 1}\r\n```\n', '````\n{"a": 1}\n````', '```json\n{"a": 1}',
    ],
)  # fmt: skip
def test_strict_takes_one_value_with_or_without_a_fence(text: str) -> None:
    assert extract.strict(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('```json\n{"a": "```x```"}\n```', {"a": "```x```"}), ('{"a": "x\ny"}', {"a": "x\ny"}), ("[1, 2]", [1, 2]), ("3", 3), ('"x"', "x"),
        ('{"a": "```"}', {"a": "```"}),
    ],
)  # fmt: skip
def test_strict_leaves_strings_alone(text: str, value: object) -> None:
    assert extract.strict(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1,\n "b" 2}', "line 2 column 6: Expecting ':' delimiter"), ('{"a": 1', "line 1 column 8: Expecting ',' delimiter"),
        ('答案：{"a": 1}', "line 1 column 1: Expecting value"), ('{"a": 1} 以上', "line 1 column 9: text after the JSON value"),
        ('```json\n{"a": 1,}\n```', "line 2 column 9: Expecting property name"), ("", "line 1 column 1: Expecting value"),
        ('{"a": 1, "a": 2}', "a key occurs twice"), ('{"a": 1, "\\u0061": 2}', "a key occurs twice"), ('{"a": NaN}', "NaN and Infinity"),
        ('{"a": -Infinity}', "NaN and Infinity"), ('{"a": ' + "9" * 5000 + "}", "too long"), ("[" * 60 + "]" * 60, "nested deeper than 48"),
        ("x" * 200_000, "longer than 131072"), ('{"a": 1}{"a": 1}', "text after the JSON value"), ("{'a': 1}", "line 1 column 2"),
    ],
)  # fmt: skip
def test_strict_says_where_and_what(text: str, says: str) -> None:
    assert says in error(text)


def test_an_error_never_quotes_the_text() -> None:
    for text in ('{"秘密": 秘密}', '秘密{"a": 1}', '{"a": 1, "a": 2, "秘密": 3} 秘密', '{"秘密": NaN}'):
        assert "秘密" not in error(text)


def test_scan_finds_values_between_prose_and_keeps_the_rest() -> None:
    got = extract.scan('说明{语境}：{"a": 1} 和 {"b": [1, {"c": 2}]} 以上')
    assert [f.value for f in got.found] == [{"a": 1}, {"b": [1, {"c": 2}]}]
    assert [f.source for f in got.found] == ['{"a": 1}', '{"b": [1, {"c": 2}]}']
    assert "语境" in got.leftover and "以上" in got.leftover and '"a"' not in got.leftover


def test_braces_inside_strings_do_not_count() -> None:
    assert extract.scan('x {"a": "} {", "b": "\\"}"} y').found[0].value == {"a": "} {", "b": '"}'}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('x {"a": [1, 2,],}', {"a": [1, 2]}), ('x {"a": 1 // one\n}', {"a": 1}), ('x {"a": /* one */ 1}', {"a": 1}), ('x {"a":\u00a01,\u200b"b": 2}', {"a": 1, "b": 2}),
        ('x {“a”： “say "hi"”}', {"a": 'say "hi"'}), ('x ｛"a"：1，"b"：［2］｝', {"a": 1, "b": [2]}), ("x {'a': True, 'b': None}", {"a": True, "b": None}),
        ("x {'a': \"it's\", 'b': 'a \\' \"q\"'}", {"a": "it's", "b": "a ' \"q\""}), ('x {"a": False}', {"a": False}), ('x {"a": "，：“”,}", }', {"a": "，：“”,}"}),
        ("x {＂a＂: 1}", {"a": 1}),
    ],
)  # fmt: skip
def test_safe_repairs_happen_outside_strings_only(text: str, value: object) -> None:
    (found,) = extract.scan(text).found
    assert found.value == value and found.repaired


@pytest.mark.parametrize(
    "text",
    [
        'x {"a": 1', "x {a: 1}", 'x {"a" 1}', 'x {"a": 1 "b": 2}', 'x {"a": true, "b": True}', 'x {"a": “b”}', "x {'a': true}", "x {'a': 'b' 'c'}", "x {,}",
        'x {"a": 1,,}', "x {'a': 0x1}", "x {'a': 1_0}", "x {'a': 1, 'a': 2}", "x {“a”: “b“c””}", 'x {"a": nan}', "x {'a': b'x'}", "x ('a',)",
    ],
)  # fmt: skip
def test_nothing_else_is_repaired(text: str) -> None:
    got = extract.scan(text)
    assert not got.found and got.leftover.strip()


def test_removed_comments_are_kept_as_left_over() -> None:
    got = extract.scan('x {"a": 1, // "b": 2\n}')
    assert got.found[0].value == {"a": 1} and '"b": 2' in got.leftover


def test_the_remains_of_a_broken_object_hide_what_follows() -> None:
    got = extract.scan('{"a": 1, {"b": 2} and {"c": 3}')
    assert not got.found and '"c": 3' in got.leftover


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=10,
)  # fmt: skip


@given(value=JSON_VALUES, ascii_only=st.booleans(), fence=st.sampled_from(["{}", "```json\n{}\n```", "~~~\n{}\n~~~", " \n{}\t"]))
def test_strict_and_scan_agree_with_json_on_any_document(value: object, ascii_only: bool, fence: str) -> None:
    text = fence.replace("{}", json.dumps(value, ensure_ascii=ascii_only), 1)
    assert extract.strict(text) == value
    assert [f.value for f in extract.scan(text).found] == [value]


@given(
    value=st.dictionaries(st.text(), JSON_VALUES, min_size=1, max_size=3),
    before=st.text(st.characters(exclude_characters="{[｛［")),
)
def test_scan_finds_any_object_behind_prose(value: dict[str, object], before: str) -> None:
    assert value in [f.value for f in extract.scan(before + "：" + json.dumps(value)).found]


@given(st.text() | st.text(alphabet="{}[]\"',:\\“”：＂｛｝/*#tTfFnN0 \n`~"))
def test_no_text_makes_it_raise_anything_else(text: str) -> None:
    got = extract.scan(text)
    assert all(isinstance(f.source, str) for f in got.found)
    try:
        extract.strict(text)
    except extract.NotJSON as why:
        assert len(str(why)) < 120
