"""The report in a real browser: without a network, by keyboard, for screen readers, in dark mode, in print."""

import base64
import json
import shutil
import urllib.parse
from pathlib import Path

import pytest
from project import Project, copy_tree
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from selenium_axe_python import Axe

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WAIT_S = 120  # only keeps what is broken from hanging
SECTIONS = ["How many ranks each job deserves", "Findings", "Failures", "Machine", "Tables", "Figures", "Runs"]
FINDING = {"name": "loading", "title": "Does loading grow?", "verdict": "no", "sentence": "No growth was shown.",
           "quantity": "load_s", "unit": "s", "estimate": 0.1, "low": -0.2, "high": 0.4, "blocks": 2,
           "blocks_disturbed": 0, "blocks_worth": None, "runs": 4, "left_out": [], "figure": "icpp2019_figure6",
           "table": "scaling", "look_for": "the lowest line"}  # fmt: skip

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: apt install chromium chromium-driver to test the report"
)


@pytest.fixture(scope="module")
def reported(finished, tmp_path_factory):
    """A copy of the finished study with a finding, which the report shows."""
    project = Project(tmp_path_factory.mktemp("reported") / "project")
    copy_tree(finished.root, project.root)
    records = [
        str(path.relative_to(project.results)) for path in sorted(project.results.glob("runs/**/strong*/record.json"))
    ]
    found = {"study": "tiny", "machine": "local", "findings": [{**FINDING, "records": records}]}
    tables = "tables: [scaling,"
    project.change("config/studies/tiny.yaml", tables, f"findings: [nt3_epoch_on_two_ranks]\n{tables}")
    project.make("findings.json", study="tiny")
    (project.made / "findings.json").write_text(json.dumps(found))
    project.snakemake("make_report", "--forcerun", "make_report")
    return project


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium that reaches no host, and notes what it asks for."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    for switch in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(f"--{switch}")
    found = webdriver.Chrome(options=options, service=Service(DRIVER))
    found.set_script_timeout(WAIT_S)
    found.unchanged = None  # the report that is open, if no test has changed it
    yield found
    found.quit()


@pytest.fixture
def report(reported, browser):
    """The report, opened anew."""
    browser.unchanged = None
    opened = Report(browser, reported.made / "report.html")
    yield opened
    opened.look()


@pytest.fixture
def unchanged(reported, browser):
    """The report for a test that changes nothing but how it looks: opened anew only after one that does."""
    browser.unchanged = browser.unchanged or Report(browser, reported.made / "report.html")
    yield browser.unchanged
    browser.unchanged.look()


class Report:
    """What a reader does."""

    def __init__(self, browser, file):
        self.browser, self.file = browser, file
        self.look()
        browser.get(file.as_uri())
        self.wait(lambda b: b.execute_script("return document.documentElement.dataset.ready"))

    def look(self, width=1400, scheme="light", media="screen"):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        of_scheme = {"name": "prefers-color-scheme", "value": scheme}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [of_scheme]})

    def wait(self, condition):
        return WebDriverWait(self.browser, WAIT_S).until(condition)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def first(self, selector):
        return self.all(selector)[0]

    def ask(self, script, *arguments):
        return self.browser.execute_script(f"return {script}", *arguments)

    def style(self, selector, name):
        return self.ask("getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, name)

    def press(self, selector, *keys):
        """Keys to an element that has the focus, which shows."""
        element = self.first(selector)
        self.browser.execute_script("arguments[0].focus()", element)
        assert self.ask("document.activeElement === arguments[0]", element)
        element.send_keys(*keys)

    def column(self, table, words):
        """The cells of a column, by its heading."""
        heads = [head.text.split("\n")[0] for head in self.all(f"#{table} thead th")]
        place = next(n for n, text in enumerate(heads, 1) if text.startswith(words))
        return place, [cell.text for cell in self.all(f"#{table} tbody td:nth-child({place})")]

    def violations(self, **context):
        """Serious and critical findings of axe."""
        axe = Axe(self.browser)
        axe.inject()
        found = axe.run(**context)["violations"]
        return [(each["id"], [node["html"] for node in each["nodes"]])
                for each in found if each["impact"] in ("serious", "critical")]  # fmt: skip


def test_it_asks_for_nothing_and_makes_no_complaint(reported, browser):
    browser.get_log("performance"), browser.get_log("browser")
    Report(browser, reported.made / "report.html")
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert asked
    assert {url.split(":")[0] for url in asked} <= {"file", "data", "blob"}
    assert [url for url in asked if url.startswith("file:")] == [(reported.made / "report.html").as_uri()]
    assert browser.get_log("browser") == []
    assert (reported.made / "report.html").stat().st_size < 10_000_000


def test_sections_and_headings_are_in_order(unchanged, reported):
    assert [each.text for each in unchanged.all("main h2")] == SECTIONS
    levels = [int(each.tag_name[1]) for each in unchanged.all("h1, h2, h3, h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    text = unchanged.first("main").text
    for words in ("No growth was shown.", "From 4 runs in 2 blocks", "the lowest line",
                  "Nothing failed.", "2.18.1", "Missing:"):  # fmt: skip
        assert words in text
    tables = [each.get_attribute("id") for each in unchanged.all("#tables section.table")]
    assert tables == [f"table-{path.stem}" for path in map(Path, _tables(reported))]


def _tables(reported):
    listed = (reported.root / "config" / "studies" / "tiny.yaml").read_text().split("tables: [")[1].split("]")[0]
    return listed.split(", ")


def test_every_figure_is_drawn_with_what_to_look_for(unchanged):
    figures = unchanged.all("#figures figure")
    assert len(figures) == 3
    for figure in figures:
        image = figure.find_element(By.TAG_NAME, "img")
        unchanged.wait(lambda b, i=image: b.execute_script("return arguments[0].naturalWidth", i) > 200)
        assert image.get_attribute("alt")
        assert "What to look for:" in figure.text
    assert "lies above that of TensorFlow" in unchanged.first("#figures").text


def test_a_table_is_sorted_by_keyboard(report):
    place, before = report.column("table-scaling", "runtime")
    head = f"#table-scaling thead th:nth-child({place})"
    report.press(f"{head} .dt-column-order", Keys.ENTER)
    report.wait(lambda b: report.first(head).get_attribute("aria-sort") == "ascending")
    numbers = [float(cell.split()[0]) for cell in report.column("table-scaling", "runtime")[1]]
    assert numbers == sorted(numbers)
    report.press(f"{head} .dt-column-order", Keys.ENTER)
    report.wait(lambda b: report.first(head).get_attribute("aria-sort") == "descending")
    assert [float(cell.split()[0]) for cell in report.column("table-scaling", "runtime")[1]] == numbers[::-1]
    assert len(before) == len(numbers) > 3


def test_rows_are_filtered_by_keyboard(report):
    report.press("#table-scaling .dt-search input", "weak")
    report.wait(lambda b: {*report.column("table-scaling", "scaling")[1]} == {"weak"})
    report.press("#table-scaling .dt-search input", Keys.BACKSPACE * 4)
    place, _ = report.column("table-scaling", "gpus")
    report.press(f"#table-scaling thead th:nth-child({place}) .dtcc-button", Keys.ENTER)
    report.wait(lambda b: report.all(".dtcc-dropdown input"))
    assert report.first(".dtcc-dropdown input").get_attribute("aria-label") == "Value: gpus"
    assert report.violations(context="'.dtcc-dropdown'") == []
    report.press(".dtcc-dropdown input", "1")
    report.wait(lambda b: {*report.column("table-scaling", "gpus")[1]} == {"1"})


def test_columns_are_chosen(report):
    def heads():
        return [each.text.split("\n")[0] for each in report.all("#table-scaling thead th")]

    few = heads()
    assert "runtime (s)" in few
    assert "batch size" not in few, "it is the same in every row"
    assert "batch size 20" in report.first("#table-scaling .same").text
    report.press("#table-scaling .buttons-colvis", Keys.ENTER)
    report.wait(lambda b: report.all(".dt-button-collection"))
    assert report.violations(context="'.dt-button-collection'") == []
    chosen = ".dt-button-collection button[aria-pressed=true]"
    report.press(chosen, Keys.ENTER)
    report.wait(lambda b: heads() == few[1:] and len(report.all(chosen)) == len(few) - 1)
    report.press("#table-scaling .buttons-colvisGroup", Keys.ENTER)
    report.wait(lambda b: len(heads()) > 2 * len(few))
    report.press("#table-scaling .buttons-colvisRestore", Keys.ENTER)
    report.wait(lambda b: heads() == few)


def test_a_row_leads_to_its_runs_and_these_to_their_records(report):
    link = report.first("#table-scaling td.runs a")
    number = link.text.removeprefix("run ")
    report.press("#table-runs .dt-search input", "no such run")
    report.wait(lambda b: not report.all(f"#run-{number}"))
    report.browser.execute_script("arguments[0].click()", link)
    report.wait(lambda b: report.all(f"#run-{number}:target"))
    record = report.first(f"#run-{number} a").get_attribute("href")
    path = Path(urllib.parse.unquote(urllib.parse.urlparse(record).path))
    assert json.loads(path.read_text())["status"] == "ok"


def test_the_csv_is_one_click_away(unchanged, reported):
    file, download = unchanged.all("#table-scaling .files a")
    content = (reported.made / "tables" / "scaling.csv").read_bytes()
    assert Path(urllib.parse.urlparse(file.get_attribute("href")).path).read_bytes() == content
    assert base64.b64decode(download.get_attribute("href").split(",")[1]) == content
    assert download.get_attribute("download") == "scaling.csv"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 800])
def test_it_is_readable_and_accessible(unchanged, width, scheme):
    unchanged.look(width, scheme)
    assert unchanged.ask("document.documentElement.scrollWidth") <= width, "only tables scroll sideways"
    ground = [int(part) for part in unchanged.style("body", "backgroundColor").strip("rgb()").split(",")]
    assert (max(ground) < 60) == (scheme == "dark")
    assert unchanged.style("figure img", "backgroundColor") == "rgb(255, 255, 255)"
    if (width, scheme) in ((1400, "light"), (800, "dark")):
        assert unchanged.violations() == []
