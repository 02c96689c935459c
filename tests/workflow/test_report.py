"""The report is one HTML page that a browser shows: every table, every figure with its caption, what failed."""

import os
import shutil

import pytest
from project import Project
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WAIT_S = 120  # only keeps what is broken from hanging
DRAWN_WIDTH = "return arguments[0].naturalWidth"  # 0 for a picture that cannot be shown

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: apt install chromium chromium-driver to test the report"
)


@pytest.fixture(scope="module")
def reported(finished, tmp_path_factory):
    """A copy of the finished study with its report."""
    project = Project(tmp_path_factory.mktemp("reported") / "project")
    shutil.copytree(finished.root, project.root, symlinks=True)
    project.snakemake("--report", project.root / "report.html")
    return project


@pytest.fixture(scope="module")
def report(reported):
    """It, opened in headless Chromium without a network."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for switch in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1400,900",
                   "host-resolver-rules=MAP * ~NOTFOUND"):  # fmt: skip
        options.add_argument(f"--{switch}")
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    browser.get((reported.root / "report.html").as_uri())
    yield Report(browser)
    browser.quit()


class Report:
    """What a reader does: choose a category, look at a result, read about it."""

    def __init__(self, browser):
        self.browser = browser

    def first(self, xpath):
        """The first visible element; waits for it."""
        found = WebDriverWait(self.browser, WAIT_S).until(
            lambda browser: [e for e in browser.find_elements(By.XPATH, xpath) if e.is_displayed()]
        )
        return found[0]

    def open(self, category):
        """Choose a category of the menu; gives the names of its results. A page still loading may not hear a click."""
        self.browser.refresh()

        def rows(browser):
            found = browser.find_elements(By.XPATH, "//tr[td]")
            if not found:
                for entry in browser.find_elements(By.XPATH, f"//span[normalize-space(text())='{category}']"):
                    entry.click()
            return found

        return [row.find_element(By.XPATH, "td").text for row in WebDriverWait(self.browser, WAIT_S).until(rows)]

    def press(self, name, button):
        """A result's button: ``eye`` shows it, ``information-circle`` tells about it."""
        self.first(f"//tr[td[normalize-space(.)='{name}']]//a[@iconname='{button}']").click()

    def page(self):
        """The text of the HTML result that is shown."""
        frame = self.first("//iframe")
        self.browser.switch_to.frame(frame)
        text = self.first("//body").text
        self.browser.switch_to.default_content()
        return text


def test_the_first_page_names_study_and_machine(report):
    text = report.first("//body").text
    assert "study tiny on machine local" in text
    for category in ("About this study", "Tables", "Figures"):
        assert category in text


def test_every_table_is_shown(report, finished):
    names = report.open("Tables")
    assert names == ["icpp2019_claims", "icpp2019_table2", "icpp2019_table3", "icpp2019_table6", "scaling"]
    for name in names:
        report.open("Tables")
        report.press(name, "eye")
        text = report.page()
        caption = (finished.made / "tables" / f"{name}.md").read_text().split("**: ")[1].split("\n")[0]
        assert caption in text
        assert "nt3" in text
        assert "The records behind each row" in text


def test_every_figure_is_drawn_and_has_its_caption(report, finished):
    assert report.open("Figures") == ["icpp2019_figure11_13", "icpp2019_figure18", "icpp2019_figure6"]
    words_of = {"icpp2019_figure6": "lies above that of TensorFlow", "icpp2019_figure18": "would ideally be flat"}
    for name, words in words_of.items():
        report.open("Figures")
        report.press(name, "eye")
        picture = report.first(f"//img[contains(@src, '{name}')]")
        WebDriverWait(report.browser, WAIT_S).until(lambda b, p=picture: b.execute_script(DRAWN_WIDTH, p) > 200)
        report.open("Figures")
        report.press(name, "information-circle")
        WebDriverWait(report.browser, WAIT_S).until(lambda b, w=words: w in b.find_element(By.XPATH, "//body").text)


def test_machine_runs_and_failures_are_told(report):
    report.open("About this study")
    report.press("overview", "eye")
    text = report.page()
    for words in ("Study tiny on local", "cores", "Nothing failed.", "tensorflow 2.18.1", "strong+epochs~4"):
        assert words in text
    assert text.count("record.json") == 7


def test_it_needs_no_network(reported):
    """One page: nothing is fetched from elsewhere when it is opened."""
    text = (reported.root / "report.html").read_text(encoding="utf-8")
    assert os.path.getsize(reported.root / "report.html") < 10_000_000
    assert 'src="http' not in text
