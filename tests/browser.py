"""A headless browser, driven by the DevTools protocol over a pipe: what a page does where somebody looks at it."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

#: no network, no first run, no screen
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
#: what overflows the window, as names of elements
_OVERFLOWING = """
(() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  const scrolls = (one) => one && (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
  const told = (one) => `${one.tagName}.${one.getAttribute("class")}: ${one.textContent.slice(0, 40)}`;
  const wider = (one) => one.getBoundingClientRect().right > wide + 1 && !scrolls(one.parentElement);
  return [...document.querySelectorAll("body *")].filter(wider).map(told).slice(0, 10).concat(["the page"]);
})()
"""


def chromium() -> str | None:
    """The browser of this machine, if any."""
    return next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
            if (found := shutil.which(name))
        ),
        None,
    )


class Browser:
    """One page at a time. `errors` are exceptions of scripts, refusals of the page's policy and whatever was asked of a network."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        there, self.out = os.pipe()
        self.back, here = os.pipe()
        # chromium reads from descriptor 3 and writes to 4; free ones, since others of this process are others'
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (there, here)]
        shell = f'exec "{program}" "$@" 3<&{high[0]} 4>&{high[1]}'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", shell, "-", *_FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"], pass_fds=high,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        for one in (there, here, *high):
            os.close(one)
        self.errors: list[str] = []
        self._events: list[dict[str, Any]] = []
        self._data, self._number, self._session = b"", 0, ""
        target = next(one for one in self._ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.back)
        self.profile.cleanup()

    def show(self, path: Path, width: int = 1280, dark: bool = False) -> None:
        """Opens a file in a window of some width."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self._ask("Emulation.setEmulatedMedia", features=scheme)
        self._events.clear()
        self.errors.clear()
        self._ask("Page.navigate", url=path.resolve().as_uri())
        self._until("Page.loadEventFired")
        self.run("new Promise((done) => setTimeout(done, 50))")
        for event in self._events:
            self._noted(event)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self._ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in found:
            self.errors.append(json.dumps(found["exceptionDetails"])[:400])
        return found["result"].get("value")

    def overflowing(self) -> list[str]:
        """What is wider than the window."""
        found: list[str] = self.run(_OVERFLOWING)
        return found

    def picture(self, path: Path, whole: bool = True) -> None:
        """Writes a PNG of the page."""
        answer = self._ask(
            "Page.captureScreenshot", captureBeyondViewport=whole, **({"clip": self._whole()} if whole else {})
        )
        path.write_bytes(base64.b64decode(answer["data"]))

    def _whole(self) -> dict[str, float]:
        size = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}

    def _noted(self, event: dict[str, Any]) -> None:
        method, about = event["method"], event["params"]
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"])[:400])
        elif method == "Log.entryAdded" and about["entry"]["level"] in {"error", "warning"}:
            self.errors.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not about["request"]["url"].startswith(("file:", "data:")):
            self.errors.append(f"asked for {about['request']['url']}")

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return answer["result"]
            self._events.append(answer)

    def _until(self, event: str) -> None:
        while not any(one.get("method") == event for one in self._events):
            self._events.append(self._next())

    def _next(self, seconds: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._data:
            found = os.read(self.back, 1 << 20)
            if not found or time.monotonic() > end:
                raise RuntimeError("the browser ended")
            self._data += found
        first, _, self._data = self._data.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is ended. Raises LookupError where this machine has none."""
    program = chromium()
    if program is None:
        raise LookupError("no chromium on this machine")
    with Browser(program) as found:
        yield found
