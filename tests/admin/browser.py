"""A page in headless Chromium, as a person uses it: by mouse and by keyboard.

SCREENSHOTS=directory keeps a picture of each view."""

import contextlib
import os

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import kit

WIDE, PHONE = (1280, 900), (390, 844)


class Page:
    """A browser that shows the page of a server."""

    def __init__(self, server, size=WIDE, scheme="light"):
        options = webdriver.ChromeOptions()
        options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        for argument in (
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--force-prefers-reduced-motion",
            "--window-size={},{}".format(*size),
        ):
            options.add_argument(argument)
        if size == PHONE:
            metrics = {"width": size[0], "height": size[1], "pixelRatio": 2.0, "touch": True}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.server = server

    def close(self):
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        complaints = [message for message in said if "status of 4" not in message]
        title = self.driver.title
        self.driver.quit()
        assert not complaints, f"the browser complains: {complaints}"
        assert title != "hit", "a body became a script"

    def open(self, path=""):
        self.driver.get(self.server.url + path)

    def wait(self, what, holds):
        """Waits until `holds` returns something true, and returns it."""
        ignored = (NoSuchElementException, StaleElementReferenceException)
        return WebDriverWait(self.driver, kit.PATIENCE_S, 0.05, ignored).until(lambda _: holds(), what)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        """The texts of all elements at one instant: the page may replace them between two questions."""
        script = "return [...document.querySelectorAll(arguments[0])].map((found) => found.innerText.trim())"
        return self.driver.execute_script(script, selector)

    def shows(self, selector, text):
        """Waits until one of the elements has this text somewhere."""
        self.wait(f"{selector} shows {text}", lambda: any(text in found for found in self.texts(selector)))

    def lacks(self, selector, text):
        """Waits until none of the elements has this text."""
        self.wait(f"{selector} lacks {text}", lambda: not any(text in found for found in self.texts(selector)))

    def click(self, selector, text=""):
        """Clicks the first element that begins with this text."""
        def clicked():
            for found in self.all(selector):
                if found.text.strip().startswith(text) and found.is_displayed() and found.is_enabled():
                    found.click()
                    return True
            return False
        self.wait(f"click {selector} {text}", clicked)

    def fill(self, selector, text):
        shown = lambda: next((each for each in self.all(selector) if each.is_displayed()), None)
        field = self.wait(f"field {selector}", shown)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text or Keys.DELETE)

    def press(self, *keys):
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def answer(self, title, label, **fields):
        """Answers the question in the dialog."""
        self.shows("dialog[open] h2", title)
        for name, text in fields.items():
            self.fill(f"dialog [name={name}]", text)
        self.click("dialog[open] button", label)
        self.wait("the dialog closes", lambda: not self.all("dialog[open]"))

    def rows(self):
        """The numbers of the jobs, or the names of the tubes, that are listed."""
        return self.texts("tbody a")

    def picture(self, name):
        if "SCREENSHOTS" in os.environ:
            os.makedirs(os.environ["SCREENSHOTS"], exist_ok=True)
            self.driver.save_screenshot(os.path.join(os.environ["SCREENSHOTS"], f"{name}.png"))


@contextlib.contextmanager
def page(server, **how):
    opened = Page(server, **how)
    try:
        yield opened
    finally:
        opened.close()
