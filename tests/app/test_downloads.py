"""A figure or table can be taken along: numbers exact in three forms, pictures that need no network."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pyarrow.parquet as pq
import pytest
import streamlit as st

from app import downloads
from app.palette import DARK

FRAME = pd.DataFrame(
    {
        "step": pd.array([0, 1, 2**62], "Int64"),
        "value": [0.1 + 0.2, math.nan, -math.inf],
        "right": pd.array([True, None, False], "boolean"),
        "token": ['=HYPERLINK("http://evil.example")', "-3", None],
    }
)


def test_numbers_come_back_exactly():
    table = pq.read_table(io.BytesIO(downloads.as_parquet(FRAME))).to_pydict()
    assert table["step"] == [0, 1, 2**62] and table["right"] == [True, None, False]
    assert table["value"][0] == 0.1 + 0.2 and table["value"][2] == -math.inf
    assert table["token"] == [*FRAME["token"][:2], None]
    rows = json.loads(downloads.as_json(FRAME))
    assert [row["step"] for row in rows] == [0, 1, 2**62]
    assert rows[0]["value"] == 0.1 + 0.2 and rows[1]["value"] is rows[2]["value"] is None
    assert [row["right"] for row in rows] == [True, None, False]
    assert rows[0]["token"] == FRAME["token"][0] and rows[2]["token"] is None
    back = pd.read_csv(io.BytesIO(downloads.as_csv(FRAME)), dtype={"token": str, "step": "Int64"})
    assert list(back["step"]) == [0, 1, 2**62] and back["value"][0] == 0.1 + 0.2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_small_and_odd_numbers_keep_every_digit(dtype):
    values = np.array([1.2345678901234566e-09, 1 / 3, 5e-324, 1.7e308, -0.0, 2**53 + 2], "float64")
    values = values[:3].astype(dtype) if dtype == "float32" else values
    frame = pd.DataFrame({"v": values})
    assert [row["v"] for row in json.loads(downloads.as_json(frame))] == values.tolist()
    assert pq.read_table(io.BytesIO(downloads.as_parquet(frame)))["v"].to_pylist() == values.tolist()
    back = pd.read_csv(io.BytesIO(downloads.as_csv(frame)))["v"]
    assert back.to_numpy(dtype).tolist() == values.tolist()


@pytest.mark.parametrize("text", ["=1+1", "\n=1+1", "  @x", "\uff1d1+1", "\tx", "+cmd|' /C calc'!A0"])
def test_a_formula_is_known_behind_blanks_and_in_full_width(text):
    (row,) = csv.reader(io.StringIO(downloads.as_csv(pd.DataFrame({"t": [text]})).decode().partition("\n")[2]))
    assert row == [f"'{text}"]


def test_a_spreadsheet_runs_no_formula_of_a_model():
    """A negative number in text stays one."""
    back = pd.read_csv(io.BytesIO(downloads.as_csv(FRAME.rename(columns={"value": "@cmd"}))), dtype=str)
    assert list(back["token"][:2]) == ["'" + FRAME["token"][0], "-3"]
    assert "'@cmd" in back.columns


def test_a_lone_surrogate_stops_no_download():
    odd = pd.DataFrame({"token": pd.Series(["a\ud800b"], dtype=object)})
    for make, _ in downloads.FORMS.values():
        assert make(odd)


def test_a_page_of_a_figure_stands_alone_and_holds_no_script_of_its_texts(monkeypatch):
    monkeypatch.setattr(downloads, "theme", lambda: DARK)
    fig = go.Figure(go.Scatter(x=[0, 1], y=[2, 3], text="</script><script>alert(1)</script>"), {"title": {"text": "T"}})
    page = downloads.page_of(fig, "run-curves").decode()
    assert "Plotly.newPlot" in page and len(page) > 3_000_000, "plotly.js is in it"
    assert "</script><script>alert" not in page and '"format": "svg"' in page
    assert DARK.background in page
    saving = downloads.saving_page(fig, "run-curves", "PNG")
    assert '"format": "png"' in saving and '"filename": "run-curves"' in saving and "downloadImage" in saving
    assert fig.layout.paper_bgcolor is None, "the figure on the page stays as it is"


def test_files_are_named_by_run_view_and_step(monkeypatch):
    class Address(dict):
        def get_all(self, name):
            return self.get(name, [])

    monkeypatch.setattr(st, "query_params", Address(run=["../<b>x"], step=["3"]))
    assert downloads.file_name("live:reward") == "b-x-live-reward-step-3"
    monkeypatch.setattr(st, "query_params", Address(run=["a", "b"]))
    assert downloads.file_name("…") == "figure"


def test_figures_and_answers_offer_a_menu(states, open_page):
    at = open_page("live", run="finished")
    assert not at.exception
    menus = [one for one in at.get("popover") if one.proto.popover.icon == ":material/download:"]
    assert len(menus) > 4
