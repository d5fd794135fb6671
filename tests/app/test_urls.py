"""Choices in the address: read, checked, written."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from app import urls


def run(script, **params) -> AppTest:
    at = AppTest.from_function(script, default_timeout=10)
    for name, value in params.items():
        at.query_params[name] = value
    return at.run()


def reader():
    import streamlit as st

    from app import urls

    st.write(
        str(
            (
                urls.int_param("step", 3, 0, 10),
                urls.float_param("tau", 0.5, 0.0, 1.0),
                urls.choice_param("by", ["a", "b"], "a"),
                urls.flag_param("more"),
                urls.list_param("run", ["x", "y"]),
            )
        )
    )


@pytest.mark.parametrize(
    ("params", "values", "warnings"),
    [
        ({}, "(3, 0.5, 'a', False, [])", 0),
        (
            {"step": "7", "tau": "0.25", "by": "b", "more": "1", "run": ["y", "x", "y"]},
            "(7, 0.25, 'b', True, ['y', 'x'])",
            0,
        ),
        ({"step": "seven"}, "(3, 0.5, 'a', False, [])", 1),
        ({"step": "11"}, "(3, 0.5, 'a', False, [])", 1),
        ({"tau": "nan"}, "(3, 0.5, 'a', False, [])", 1),
        ({"by": "<img src=x>"}, "(3, 0.5, 'a', False, [])", 1),
        ({"run": ["x", "zork"]}, "(3, 0.5, 'a', False, ['x'])", 1),
        ({"more": "maybe"}, "(3, 0.5, 'a', False, [])", 0),
    ],
)
def test_bad_values_give_a_sentence_and_the_default(params, values, warnings):
    at = run(reader, **params)
    assert not at.exception
    assert at.markdown[0].value == values
    assert len(at.warning) == warnings
    assert all("<" not in warning.value.replace("\\<", "") for warning in at.warning)


def bound():
    import streamlit as st

    from app import urls

    now = urls.choice_param("by", ["a", "b", "c"], "a")
    chosen = st.selectbox("By", ["a", "b", "c"], **urls.bound("by", now))
    st.write(chosen)


def test_a_bound_widget_follows_the_address_and_writes_it():
    at = run(bound, by="b")
    assert at.selectbox[0].value == "b"
    at.selectbox[0].set_value("c").run()
    assert at.query_params["by"] == "c"
    assert at.markdown[0].value == "c"
    at.query_params["by"] = "a"  # the back button
    at.run()
    assert at.selectbox[0].value == "a"


def test_addresses_repeat_lists_and_write_switches_as_digits():
    assert urls.href("tokens", run="a b", step=0, group=None) == "tokens?run=a+b&step=0"
    assert urls.href("compare", run=["x", "y"], more=True) == "compare?run=x&run=y&more=1"
    assert urls.href("runs") == ""
