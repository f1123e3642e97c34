"""That what goes wrong on a page is noticed, by pages that go wrong."""

from __future__ import annotations

from playwright.sync_api import Page, Route

from tests.page.axe import faults
from tests.page.browser import Watch

POLICY = "<meta http-equiv=Content-Security-Policy content=\"default-src 'unsafe-inline'\">"


def show(page: Page, content: str) -> None:
    """Open a page of one file, whose host has nothing else."""

    def answer(route: Route) -> None:
        here = route.request.url == "http://127.0.0.1/"
        body = f"<html lang=en><link rel=icon href=data:,><title>a</title>{content}"
        route.fulfill(status=200 if here else 404, content_type="text/html", body=here * body)

    page.route("http://127.0.0.1/**", answer)
    page.goto("http://127.0.0.1/", wait_until="networkidle")


def test_what_goes_wrong_is_noticed(page: Page, watch: Watch) -> None:
    wrong = {
        "<script>console.error('no!')</script>": "error: no!",
        "<script>console.warn('hm')</script>": "warning: hm",
        "<script>throw Error('gone')</script>": "uncaught: gone",
        "<script>fetch('/missing')</script>": "404",
        "<img src=http://example.org/a.png>": "asked another host: http://example.org/a.png",
    }
    show(page, "".join(wrong))
    for said in wrong.values():
        assert any(said in problem for problem in watch.problems), (said, watch.problems)
    watch.problems.clear()


def test_a_violation_of_the_policy_is_noticed(page: Page, watch: Watch) -> None:
    show(page, f"{POLICY}<img src=image.png>")
    assert "Content Security Policy" in watch.problems.pop()


def test_an_answer_that_is_provoked_is_no_problem(page: Page, watch: Watch) -> None:
    watch.allow(404)
    show(page, "<script>fetch('/missing')</script>")


def test_axe_works_under_a_policy(page: Page) -> None:
    show(page, f"{POLICY}<body><main><h1>a</h1><img></main>")
    [fault] = faults(page)
    assert fault.startswith("image-alt (critical): <img>")
