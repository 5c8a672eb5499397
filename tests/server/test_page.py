"""The page in a real browser. Skipped where Chromium or selenium is missing."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from server_model import running
from thalweg import LLM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
TOOL = (
    '[{"type": "function", "function": {"name": "depth", "strict": true, "parameters": '
    '{"type": "object", "properties": {}, "additionalProperties": false}}}]'
)


@pytest.fixture
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def wait(browser: Any) -> Callable[[Callable[[], Any]], None]:
    from selenium.webdriver.support.ui import WebDriverWait

    def until(condition: Callable[[], Any]) -> None:
        WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda _: condition())

    return until


def keep_picture(browser: Any, name: str) -> None:
    """Where THALWEG_SCREENSHOTS says, for somebody to look at."""
    if folder := os.environ.get("THALWEG_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/{name}.png")


def test_chat_in_a_browser(tiny_llm_dir: Path, browser: Any, wait: Any) -> None:
    with LLM(tiny_llm_dir, kernels="cpu", max_model_len=512) as llm, running(llm) as server:
        chat(browser, wait, server.url)
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


def chat(browser: Any, wait: Any, url: str) -> None:
    def find(css: str) -> Any:
        return browser.find_element("css selector", css)

    def texts(css: str) -> list[str]:
        """All at once: an answer's nodes are made anew with every piece of it."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent);"
        found: list[str] = browser.execute_script(script, css)
        return found

    def set_value(css: str, value: str) -> None:
        browser.execute_script(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];", css, value
        )

    browser.set_window_size(1280, 800)
    browser.get(url)
    wait(lambda: find("#model").text == "tiny")
    set_value("#seed", "3")

    set_value("#max_tokens", "40")
    find("#input").send_keys("where does the river run?\n")
    wait(lambda: texts(".message.assistant .thought") and texts(".message.assistant .thought")[0])
    assert not find(".message.assistant details").get_property("open"), "thinking is folded"
    wait(lambda: any("length: 40 tokens" in text for text in texts(".about")))
    wait(lambda: "of" in find("#blocks-text").text and texts("#recent li"))
    keep_picture(browser, "chat-wide")

    find("#show-settings").click()
    find("#thinking").click()
    set_value("#tools", TOOL)
    find("#show-settings").click()
    set_value("#max_tokens", "60")
    set_value("#tool_choice", "required")
    find("#input").send_keys("call it\n")
    wait(lambda: texts(".call strong")[:1] == ["depth"] and texts(".call code")[0] == "{}")
    wait(lambda: find("#send").is_displayed() and find(".calls form input"))
    set_value("#tool_choice", "none")
    while inputs := browser.find_elements("css selector", ".calls form input"):
        inputs[0].send_keys("7 metres\n")
    wait(lambda: len(texts(".content")) == 3 and texts(".content")[2])
    wait(lambda: find("#send").is_displayed())
    keep_picture(browser, "tool-wide")

    set_value("#tools", "")
    set_value("#max_tokens", "")
    find("#input").send_keys("go on for long\n")
    wait(lambda: len(texts(".content")) == 4 and texts(".content")[3])
    find("#stop").click()
    wait(lambda: find("#send").is_displayed())

    before = texts(".content")[3]
    set_value("#max_tokens", "5")
    find(".retry").click()
    wait(lambda: len(texts(".content")) == 4 and "length: 5 tokens" in texts(".about")[3])
    again = texts(".content")[3].rstrip("\ufffd").rstrip()
    assert again and before.startswith(again), "the seed is the same"

    browser.set_window_size(390, 844)
    keep_picture(browser, "chat-narrow")
    assert not find("#engine").is_displayed()
    find("#show-engine").click()
    assert find("#engine").is_displayed()
    keep_picture(browser, "engine-narrow")
    find("#show-engine").click()
    find("#new").click()
    assert texts(".message") == []
