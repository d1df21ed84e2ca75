"""The page as a person meets it, in a browser without a screen."""

import base64
import json
import shutil
import time

import pytest

from ordinal_entropy import report
from saved_folders import make_run, make_study

webdriver = pytest.importorskip("selenium.webdriver", reason="a browser is driven by selenium")
BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not (BINARY and DRIVER):
    pytest.skip("needs a browser: apt-get install chromium chromium-driver", allow_module_level=True)

By = pytest.importorskip("selenium.webdriver.common.by", reason="a browser is driven by selenium").By
Keys = webdriver.Keys
WIDE, PHONE = 1280, 360
EVIL = "<script>document.title = 'broken'</script>"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BINARY
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def look(browser, tmp_path, quick_layout):
    """Opens the page of a folder at a width; afterwards nothing was complained of or asked of the network."""

    def opened(folder, width=WIDE, dark=False):
        report.write(folder)
        resized(width)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        browser.get((folder / report.FILE).as_uri())
        wait(lambda: browser.execute_script("return document.documentElement.dataset.ready") == "yes")
        return browser

    def resized(width):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    opened.resized = resized
    yield opened
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [own["params"]["request"]["url"] for own in events if own["method"] == "Network.requestWillBeSent"]
    assert asked and not [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]


def wait(condition, seconds=8):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def all_drawn(browser):
    """Everything is scrolled past, since figures are drawn when they come near."""
    for figure in browser.find_elements(By.CSS_SELECTOR, ".chart"):
        browser.execute_script("arguments[0].scrollIntoView()", figure)
        time.sleep(0.05)
    plots = "return document.querySelectorAll('.drawing').length"
    drawn = "return document.querySelectorAll('.drawing .cartesianlayer .subplot').length"
    wait(lambda: browser.execute_script(drawn) >= browser.execute_script(plots))


def does_not_scroll_sideways(browser):
    return browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def picture(browser, path):
    """Of the whole page."""
    size = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(shot["data"]))
    return path.stat().st_size


def painted(browser, canvas):
    """How many pixels of a canvas are not empty, and a sum that changes with what is drawn."""
    script = (
        "const c = arguments[0], o = document.createElement('canvas'); o.width = c.width; o.height = c.height;"
        "const p = o.getContext('2d'); p.drawImage(c, 0, 0); const d = p.getImageData(0, 0, c.width, c.height).data;"
        "let n = 0, s = 0; for (let k = 0; k < d.length; k += 4) if (d[k + 3]) { n++; s = (s * 31 + k + d[k]) % 1e9 }"
        "return [n, s]"
    )
    return browser.execute_script(script, canvas)


def shown_rows(browser, chart=0):
    script = "return document.querySelectorAll('.drawing')[arguments[0]].querySelectorAll('.ytick').length"
    return browser.execute_script(script, chart)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_the_page_draws_at_both_widths_and_in_the_dark(width, dark, look, tmp_path):
    browser = look(make_study(tmp_path / "study", grid=(6, 8)), width, dark)
    all_drawn(browser)
    assert does_not_scroll_sideways(browser)
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark
    text = browser.execute_script("return document.querySelector('.drawing .xtitle').style.fill")
    assert text == ("rgb(232, 234, 237)" if dark else "rgb(28, 30, 33)")
    for canvas in browser.find_elements(By.CSS_SELECTOR, ".panels canvas"):
        assert painted(browser, canvas)[0] > 300
    assert picture(browser, tmp_path / f"{width}-{'dark' if dark else 'light'}.png") > 40_000


def test_the_verdict_is_on_the_first_screen(look, tmp_path):
    browser = look(make_study(tmp_path / "study", methods=("baseline", "oe"), features=False), PHONE)
    headline = browser.find_element(By.CSS_SELECTOR, ".headline")
    assert headline.text.startswith("oe is better than baseline: MAE 1") and headline.location["y"] < 500


def test_methods_and_views_are_chosen(look, tmp_path):
    browser = look(make_study(tmp_path / "study"))
    all_drawn(browser)
    assert shown_rows(browser, 0) == 2 and shown_rows(browser, 1) == 3
    boxes = browser.find_elements(By.CSS_SELECTOR, ".methods input")
    boxes[1].click()
    wait(lambda: shown_rows(browser, 0) == 1 and shown_rows(browser, 1) == 2)
    seen = [figure.is_displayed() for figure in browser.find_elements(By.CSS_SELECTOR, ".panels figure")]
    assert seen == [True, False, True]
    browser.find_element(By.CSS_SELECTOR, "[data-choose=none]").click()
    wait(lambda: len(browser.find_elements(By.CSS_SELECTOR, ".drawing .empty")) == 4)
    browser.find_element(By.CSS_SELECTOR, "[data-choose=all]").click()
    wait(lambda: shown_rows(browser, 1) == 3 and not browser.find_elements(By.CSS_SELECTOR, ".drawing .empty"))
    assert all(box.is_selected() for box in boxes)
    line = "return document.querySelectorAll('.drawing')[2].data.find((trace) => trace.name === 'oe').y.length"
    for radio in browser.find_elements(By.CSS_SELECTOR, ".chart:not(.cloud) .views input"):
        browser.execute_script("arguments[0].click()", radio)  # it is the label that can be pointed at
        assert browser.execute_script(line) == 6
    assert browser.find_elements(By.CSS_SELECTOR, ".chart .views label")


def test_a_point_is_shown_in_every_method_with_its_place(look, tmp_path):
    browser = look(make_study(tmp_path / "study", grid=(6, 8)))
    all_drawn(browser)
    slider = browser.find_element(By.NAME, "point")
    slider.send_keys(Keys.ARROW_RIGHT)
    inspector = browser.find_element(By.CSS_SELECTOR, ".inspector p")
    wait(lambda: "target" in inspector.text)
    assert inspector.text.startswith("Row 1 of 48 (one test image), at row 0, column 4 of the image: target 1.17")
    assert "Predicted after epoch 6: baseline 1.2" in inspector.text
    maps = browser.find_elements(By.CSS_SELECTOR, ".maps figure")
    assert [own.text for own in maps] == ["target", "baseline", "ld", "oe"]
    assert all(painted(browser, own.find_element(By.TAG_NAME, "canvas"))[0] == 32 * 24 for own in maps)
    before = inspector.text
    panel = browser.find_elements(By.CSS_SELECTOR, ".panels canvas")[0]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", panel)
    actions = webdriver.ActionChains(browser, duration=20)
    for step in range(-100, 101, 10):  # along a line through the cloud
        actions.move_to_element_with_offset(panel, step, step // 2)
    actions.perform()
    assert inspector.text != before and "target" in inspector.text


def test_epochs_slide_on_the_sphere_and_on_the_plane(look, tmp_path):
    browser = look(make_study(tmp_path / "study"))
    all_drawn(browser)
    canvas = browser.find_element(By.CSS_SELECTOR, ".panels canvas")
    epoch = browser.find_element(By.NAME, "epoch")
    states = [painted(browser, canvas)]
    epoch.send_keys(Keys.HOME)
    states.append(painted(browser, canvas))
    assert epoch.find_element(By.XPATH, "following-sibling::output").text == "1 of 6"
    canvas.send_keys(Keys.ARROW_LEFT)
    states.append(painted(browser, canvas))
    browser.find_element(By.XPATH, "//label[span='on the plane']").click()
    states.append(painted(browser, canvas))
    assert len({tuple(state) for state in states}) == 4
    play = browser.find_element(By.CSS_SELECTOR, "[data-play]")
    play.click()
    assert play.text == "Stop"
    wait(lambda: epoch.get_attribute("value") == "1")
    play.click()
    assert play.text == "Play"


def test_the_keyboard_reaches_every_control_in_order(look, tmp_path):
    browser = look(make_study(tmp_path / "study"))
    all_drawn(browser)
    browser.execute_script("window.scrollTo(0, 0)")
    seen = []
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        script = (
            "const e = document.activeElement, s = getComputedStyle(e);"
            "const span = e.nextElementSibling && getComputedStyle(e.nextElementSibling);"
            "return [e.tagName, e.name || e.dataset.choose || e.className || e.textContent.slice(0, 20),"
            " s.outlineStyle !== 'none' || (span && span.outlineStyle !== 'none')]"
        )
        tag, name, ringed = browser.execute_script(script)
        if tag == "BODY":
            break
        assert ringed, (tag, name)
        seen.append(name)
    wanted = ["skip", "method", "all", "none", "view-0-2", "layout-0", "epoch", "Play", "point", "Copy"]
    places = [seen.index(name) for name in wanted]
    assert places == sorted(places)
    assert seen.count("method") == 3


def test_space_chooses_and_details_open(look, tmp_path):
    browser = look(make_study(tmp_path / "study", features=False))
    all_drawn(browser)
    box = browser.find_elements(By.CSS_SELECTOR, ".methods input")[2]
    box.send_keys(Keys.SPACE)
    wait(lambda: shown_rows(browser, 1) == 2)
    for summary in browser.find_elements(By.TAG_NAME, "summary"):
        summary.send_keys(Keys.ENTER)
    assert all(own.get_attribute("open") for own in browser.find_elements(By.TAG_NAME, "details"))
    assert does_not_scroll_sideways(browser)
    browser.find_element(By.CSS_SELECTOR, "[data-copy]").click()
    wait(lambda: browser.find_element(By.CSS_SELECTOR, "[data-copy]").text in ("Copied", "Selected"))


def test_the_page_follows_a_new_width_and_scheme(look, tmp_path):
    browser = look(make_study(tmp_path / "study"))
    all_drawn(browser)
    look.resized(PHONE)
    wide = "return Math.max(...[...document.querySelectorAll('.drawing .main-svg')].map((svg) => svg.clientWidth))"
    wait(lambda: browser.execute_script(wide) <= PHONE)
    wait(lambda: does_not_scroll_sideways(browser))
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    colour = "return document.querySelector('.drawing .xtitle').style.fill"
    wait(lambda: browser.execute_script(colour) == "rgb(232, 234, 237)")


def test_a_method_named_like_a_script_does_nothing(look, tmp_path):
    folder = make_study(tmp_path / "study", methods=("baseline", EVIL, "<img src=x onerror=document.title='broken'>"))
    browser = look(folder)
    all_drawn(browser)
    for box in browser.find_elements(By.CSS_SELECTOR, ".methods input"):
        box.click()
        box.click()
    browser.find_element(By.NAME, "point").send_keys(Keys.ARROW_RIGHT)
    assert browser.title == "table4-age" and EVIL in browser.find_element(By.TAG_NAME, "body").text
    labels = browser.execute_script(
        "return document.querySelectorAll('.drawing')[1].querySelector('.yaxislayer-above').textContent"
    )
    assert EVIL in labels


def test_a_page_of_runs_and_one_of_nothing(look, tmp_path):
    make_run(tmp_path / "runs" / "one", "oe", 0)
    make_run(tmp_path / "runs" / "half", "ld", 1, over=False)
    browser = look(tmp_path / "runs", PHONE)
    all_drawn(browser)
    assert "half-written" in browser.find_element(By.CSS_SELECTOR, ".left-out").text
    assert does_not_scroll_sideways(browser)
    (tmp_path / "empty").mkdir()
    assert "nothing to show" in look(tmp_path / "empty").find_element(By.CSS_SELECTOR, ".headline").text
