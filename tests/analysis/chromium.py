"""A browser without a window, driven over its DevTools pipe: open a page, ask it, take pictures."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

PATIENCE_S = 120.0


def path() -> str | None:
    """Where a Chromium is, or None."""
    return next((p for p in map(shutil.which, NAMES) if p), None)


class Browser:
    """One page of one browser. `errors` has what its console and its scripts complained of."""

    def __init__(self, read: int, write: int):
        self._read, self._write = read, write
        self._buffer = b""
        self._next = 0
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; events that come before it are looked at."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            got = self._receive()
            if got.get("id") == self._next:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self._note(got)

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            got = os.read(self._read, 1 << 20) if ready else b""
            if not got:
                raise RuntimeError("the browser went away")
            self._buffer += got
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:2000])
            case "Runtime.consoleAPICalled":
                self.errors.append(json.dumps(params["args"])[:2000])
            case "Log.entryAdded":
                self.errors.append(params["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.errors.append(f"dialog: {params['message']}")
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith("file:"):
                self.errors.append(f"fetched {params['request']['url'][:200]}")

    def open(
        self, file: Path, fragment: str = "", *, width: int = 1400, dark: bool = False
    ) -> None:
        """Loads a file and waits until its scripts have run."""
        self.size(width)
        scheme = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=f"{file.resolve().as_uri()}{fragment}")
        until = time.monotonic() + PATIENCE_S
        loaded = "document.readyState === 'complete' && location.href.startsWith('file:')"
        while not self.run(loaded):
            if time.monotonic() > until:
                raise RuntimeError("the page did not load")
            time.sleep(0.02)

    def size(self, width: int, height: int = 1000) -> None:
        """The size of the window, in CSS pixels."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def run(self, script: str) -> Any:
        """The value of an expression in the page. Raises RuntimeError where it throws."""
        got = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(json.dumps(got["exceptionDetails"])[:2000])
        return got["result"].get("value")

    def click(self, selector: str, *, shift: bool = False) -> None:
        """A real click at the middle of the first element that matches."""
        x, y = self.middle(selector)
        self.mouse("mousePressed", x, y, shift=shift)
        self.mouse("mouseReleased", x, y, shift=shift)

    def middle(self, selector: str) -> tuple[float, float]:
        """Where the middle of an element is in the window, after scrolling to it."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return box[0], box[1]

    def mouse(self, kind: str, x: float, y: float, *, shift: bool = False) -> None:
        """One event of the mouse's left button or movement."""
        moved = kind == "mouseMoved"
        self.ask(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="none" if moved else "left",
            buttons=0 if moved else 1,
            clickCount=0 if moved else 1,
            modifiers=8 if shift else 0,
        )

    def press(self, key: str) -> None:
        """A key down and up."""
        text = {"text": {"Enter": "\r"}.get(key, key)} if len(key) == 1 or key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, file: Path | None = None, *, whole: bool = True) -> bytes:
        """A PNG of the window or of the whole page, written to `file` too."""
        params: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            box = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            params["clip"] = {**box, "scale": 1}
        png = base64.b64decode(self.ask("Page.captureScreenshot", **params)["data"])
        if file is not None:
            file.write_bytes(png)
        return png

    def pdf(self, file: Path | None = None) -> bytes:
        """The page as it prints."""
        got = self.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        data = base64.b64decode(got["data"])
        if file is not None:
            file.write_bytes(data)
        return data


@contextmanager
def browser(executable: str | None = None) -> Iterator[Browser]:
    """A browser of its own, with a profile that goes with it."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def pipes() -> None:
        # The browser reads commands from 3 and writes answers to 4: first out of each other's way.
        a, b = os.dup(to_read), os.dup(from_write)
        os.dup2(a, 3)
        os.dup2(b, 4)

    profile = tempfile.mkdtemp(prefix="chromium-")
    command = [
        executable or path() or "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
    ]
    process = subprocess.Popen(
        command,
        preexec_fn=pipes,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(from_read, to_write)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to_write)
        os.close(from_read)
        shutil.rmtree(profile, ignore_errors=True)
