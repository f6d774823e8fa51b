"""A headless Chromium that tests steer over its debugging pipe; `find` says whether there is one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"
_SECONDS = 60


def find() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Tab:
    """One page; `complaints` are what its console and its network said."""

    def __init__(self, commands: int, answers: int):
        self._commands, self._answers, self._rest, self._number = commands, answers, b"", 0
        self.complaints: list[str] = []
        self._session = ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            chunk = os.read(self._answers, 1 << 16)
            assert chunk, "the browser has ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        method, parameters = message.get("method", ""), message.get("params", {})
        if method in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(str(parameters))
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(("file:", "about:")):
            self.complaints.append(f"asks for {parameters['request']['url']}")
        return message

    def open(self, page: Path, width: int = 1000, dark: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + _SECONDS
        while self.run("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )  # fmt: skip


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    import fcntl

    (read, commands), (answers, write) = os.pipe(), os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
    # The browser takes commands from its file 3 and answers on its file 4.
    far_read, far_write = (fcntl.fcntl(file, fcntl.F_DUPFD, 10) for file in (read, write))
    line = f'exec "$0" "$@" 3<&{far_read} 4>&{far_write} {far_read}<&- {far_write}>&-'
    process = subprocess.Popen(
        ["bash", "-c", line, str(find()), *options, "--remote-debugging-pipe"],
        pass_fds=(far_read, far_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for file in (read, write, far_read, far_write):
        os.close(file)
    try:
        yield Tab(commands, answers)
    finally:
        os.close(commands)
        os.close(answers)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
