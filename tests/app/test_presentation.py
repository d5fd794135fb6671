"""The presentation switch: in the address, in every link, remembered, and everything drawn with it grows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest

from app.palette import LIGHT
from app.presentation import SCALE
from app.urls import PAGES
from app.views.base import figure
from app.views.enlarge import enlarged

VIEWS = Path(__file__).parents[2] / "app" / "views"


def styles(at):
    return "".join(element.proto.body for element in at.get("html"))


def switch(at):
    return next(button for button in at.button if button.key == "present")


def fonts(at):
    """The sizes of the axes' type in the figures of a page."""
    found = [json.loads(chart.proto.spec)["layout"]["xaxis"]["tickfont"]["size"] for chart in at.get("plotly_chart")]
    assert found
    return set(found)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_the_switch_and_grows_with_it(states, open_page, page):
    at = open_page(page)
    assert "--lab-zoom" not in styles(at)
    switch(at).click().run()
    assert at.query_params["present"] == "1"
    assert f"font-size: {16 * SCALE}px" in styles(at)
    assert f"--lab-zoom: {SCALE}" in styles(at)
    switch(at).click().run()
    assert "present" not in at.query_params
    assert "--lab-zoom" not in styles(at)


def test_the_type_of_figures_grows(states, open_page):
    assert fonts(open_page("live", run="finished")) == {12}
    assert fonts(open_page("live", run="finished", present="1")) == {12 * SCALE}


def test_the_session_remembers_it_where_a_link_says_nothing(states, open_page):
    at = open_page("live", run="finished", present="1")
    at.query_params.clear()
    at.switch_page("pages/polarity.py").run()
    assert at.query_params["present"] == "1"
    at.query_params["present"] = "0"
    at.run()
    at.query_params.clear()
    at.switch_page("pages/live.py").run()
    assert "present" not in at.query_params


def test_links_inside_tables_take_it_along(states, open_page):
    links = re.findall(r"href=['\"]([^'\"]*)['\"]", styles(open_page("polarity", run="finished", present="1")))
    assert links
    assert all("present=1" in link for link in links)
    assert "present" not in "".join(
        re.findall(r"href=['\"][^'\"]*['\"]", styles(open_page("polarity", run="finished")))
    )


def test_a_figure_grows_in_all_that_is_counted_in_pixels():
    fig = figure(LIGHT, title="t", x="step", y="entropy (nats)", height=300)
    fig.add_scatter(x=[0, 1], y=[1, 2], marker={"size": 6}, line={"width": 2})
    fig.add_scatter(x=[0, 1], y=[1, 2], mode="markers", marker={"size": 10, "symbol": "square", "line": {"width": 1}})
    fig.add_annotation(text="a", yshift=6, font={"size": 13})
    large = enlarged(fig, 2.0)
    layout = large.layout
    assert (layout.font.size, layout.xaxis.tickfont.size, layout.legend.font.size) == (26, 24, 24)
    assert (layout.xaxis.title.font.size, layout.hoverlabel.font.size, layout.annotations[0].font.size) == (26, 26, 26)
    assert (large.data[0].marker.size, large.data[0].line.width, layout.annotations[0].yshift) == (12, 4, 12)
    assert large.data[1].marker.size == 10, "squares fill the cells of a grid"
    assert (layout.height, layout.margin.l) == (450, 16)
    assert list(large.data[0].y) == [1, 2]
    assert fig.layout.font.size == 13, "the caller's figure stays as it was"
    assert enlarged(fig, 1.0) is fig
    assert enlarged(go.Figure(), 2.0).layout.font.size == 24


def test_views_that_count_in_pixels_follow_the_zoom():
    assert "zoom: var(--lab-zoom, 1)" in (VIEWS / "component_parts.css").read_text(encoding="utf-8")
    scripts = "".join(file.read_text(encoding="utf-8") for file in VIEWS.glob("*.js"))
    assert scripts.count("devicePixelRatio") == 1, "canvases are drawn as sharp as they are shown: sharp()"


def test_no_table_fixes_the_size_of_its_type_in_pixels():
    fixed = {
        file.name: found
        for file in VIEWS.glob("*.py")
        if (found := re.findall(r"font(?:-size)?:[^;\"'}]*\dpx", file.read_text(encoding="utf-8")))
    }
    assert not fixed, "write rem: type in pixels does not grow with the presentation switch"
