#!/usr/bin/env python3
"""Builds the documentation site and checks it as a reader sees it, from the disk.

Without a browser: no warning of the generator, no broken link, no missing anchor or picture.
In headless Chromium, for every page: no script error, nothing loaded from the network, and no page wider
than the window at 400 pixels; and the search finds ftsort_run. With --pictures DIR it also leaves
screenshots of the front page and of an API page. Chromium is driven through a pipe with the DevTools
protocol, so the standard library is enough.
"""

import argparse
import base64
import fcntl
import html.parser
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

import build_site

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NARROW, WIDE = 400, 1200
LIMIT = 30  # seconds for one page


class Page(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(filter(None, (attrs.get("id"), attrs.get("name") if tag == "a" else None)))
        for name in ("href", "src"):
            if attrs.get(name) and tag != "base":
                self.links.append(attrs[name])

    handle_startendtag = handle_starttag


def pages_of(site):
    """The pages that we make; those of cargo doc are only led to."""
    return [path for path in sorted(site.rglob("*.html")) if "rust" not in path.relative_to(site).parts[:1]]


def broken_links(site):
    """The links that lead nowhere, of all pages; a list of lines."""
    pages = {path: Page(path) for path in pages_of(site)}
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(parts.path)))
            anchor = urllib.parse.unquote(parts.fragment)
            name = path.relative_to(site)
            if not target.is_file():
                wrong.append(f"{name}: {link}: there is no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors and anchor != "top":
                wrong.append(f"{name}: {link}: the page has no such anchor")
    return wrong


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, program, folder):
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        command_end, self.commands = os.pipe()
        self.answers, answer_end = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (command_end, answer_end)]

        def connect():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.log = open(folder / "chromium.log", "w+")
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=self.log, close_fds=False, preexec_fn=connect)
        for end in (command_end, answer_end, *ends):
            os.close(end)
        self.number, self.buffer, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def receive(self, deadline):
        """The next message of the browser."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.answers, 1 << 20) if ready else b""
            if not data:
                self.log.seek(0)
                raise RuntimeError(f"the browser does not answer:\n{self.log.read()[-2000:]}")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def width(self, pixels, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1,
                  mobile=False)

    def wait_for_load(self):
        deadline = time.monotonic() + LIMIT
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive(deadline))

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for_load()

    def value(self, expression):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def complaints(self):
        """The script errors, and the requests to the network, since the page was opened."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                found.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if urllib.parse.urlsplit(url).scheme in ("http", "https", "ws", "wss"):
                    found.append(f"loads {url}")
        return found

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(LIMIT)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.log.close()


def check_pages(browser, site):
    """The faults of the pages as the browser shows them; a list of lines."""
    wrong = []
    browser.width(NARROW)
    for path in pages_of(site):
        name = path.relative_to(site)
        browser.open(path.as_uri())
        shown, there = browser.value("[document.documentElement.clientWidth, document.documentElement.scrollWidth]")
        if there > shown:
            wrong.append(f"{name}: {there} pixels wide in a window of {shown}")
        wrong += [f"{name}: {line}" for line in browser.complaints()]
    return wrong


def check_search(browser, site, word="ftsort_run"):
    """Types a word into the search box of the front page; the faults, and the number of results."""
    browser.width(WIDE)
    browser.open((site / "index.html").as_uri())
    browser.events.clear()
    browser.value(f"""(() => {{ const box = document.querySelector('input[name="q"]');
                     box.value = {json.dumps(word)}; box.form.submit(); }})()""")
    browser.wait_for_load()
    deadline, links = time.monotonic() + LIMIT, []
    while time.monotonic() < deadline:
        done = browser.value("document.querySelector('#search-results .search-summary')?.innerText ?? ''")
        links = browser.value("[...document.querySelectorAll('#search-results ul.search a')].map(a => a.href)")
        if "finished" in done or "did not match" in done:
            break
        time.sleep(0.1)
    wrong = [f"search: {line}" for line in browser.complaints()]
    if not links or not links[0].endswith(f"#c.{word}"):
        wrong.append(f"search: the first result for {word} is {links[0] if links else 'missing'}")
    return wrong, len(links)


def take_pictures(browser, site, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in (("front", "index.html"), ("api", "api/ftsort.html#c.ftsort_run"),
                       ("search", "search.html?q=ftsort_run")):
        path, mark, rest = page.partition("#") if "#" in page else page.partition("?")
        for width in (WIDE, NARROW):
            browser.width(width)
            browser.open("about:blank")
            browser.open((site / path).as_uri() + mark + rest)
            time.sleep(1)
            browser.picture(folder / f"{name}-{width}.png")


def main():
    parser = argparse.ArgumentParser(description="Builds the documentation site and checks it.")
    parser.add_argument("--pictures", type=pathlib.Path, help="leave screenshots in this folder")
    parser.add_argument("--without-browser", action="store_true", help="check links and anchors only")
    options = parser.parse_args()
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None and not options.without_browser:
        sys.exit("check_site: no Chromium in PATH: install it (Debian: apt install chromium), set CHROMIUM,"
                 " or pass --without-browser")
    site = build_site.OUTPUT
    site.parent.mkdir(parents=True, exist_ok=True)
    if not build_site.build(site, strict=True):
        sys.exit("check_site: the generator warns, see above")
    wrong = broken_links(site)
    print(f"  links of {len(pages_of(site))} pages: {'broken' if wrong else 'lead somewhere'}", flush=True)
    if not options.without_browser:
        with tempfile.TemporaryDirectory(prefix="ftsort-site-", ignore_cleanup_errors=True) as folder:
            browser = Browser(program, pathlib.Path(folder))
            try:
                wrong += check_pages(browser, site)
                missed, results = check_search(browser, site)
                wrong += missed
                if options.pictures:
                    take_pictures(browser, site, options.pictures)
            finally:
                browser.close()
        print(f"  {len(pages_of(site))} pages in Chromium, {results} results of the search", flush=True)
    if wrong:
        sys.exit("\n".join(wrong))
    print("the site is in order")


if __name__ == "__main__":
    main()
