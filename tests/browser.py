"""Headless Chromium over its DevTools pipe: no port, no package."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
from contextlib import contextmanager

EXECUTABLE = shutil.which("chromium")
PATIENCE = 180  # seconds: a browser that hangs must not hang the tests


@contextmanager
def page(profile):
    """A tab in a fresh Chromium, which ends with the block; `profile` is an empty folder for its
    files.
    """
    requests, answers = os.pipe(), os.pipe()
    # Chromium reads from descriptor 3 and writes to 4: copies above 9 keep our own ends out of the
    # way.
    theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (requests[0], answers[1])]
    silent = os.open(os.devnull, os.O_RDWR)
    actions = [
        (os.POSIX_SPAWN_DUP2, a, b)
        for a, b in ((theirs[0], 3), (theirs[1], 4), (silent, 1), (silent, 2))
    ]
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
    ]
    environment = {**os.environ, "HOME": str(profile)}
    process = os.posix_spawn(
        EXECUTABLE, [EXECUTABLE, *options], environment, file_actions=actions, setpgroup=0
    )
    for descriptor in (requests[0], answers[1], silent, *theirs):
        os.close(descriptor)
    try:
        yield Page(requests[1], answers[0])
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(requests[1])
        os.close(answers[0])


class Page:
    """One tab. `problems` collects what the console and the network complained about."""

    def __init__(self, requests, answers):
        self._requests, self._answers, self._session, self._number = requests, answers, None, 0
        self._received = b""
        self.problems = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path, width, height=900, scheme="light"):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=path.as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)[
            "result"
        ].get("value")

    def screenshot(self, whole=False):
        return base64.b64decode(
            self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        )

    def _receive(self):
        while b"\0" not in self._received:
            assert select.select([self._answers], [], [], PATIENCE)[0], (
                f"Chromium was silent for {PATIENCE} s"
            )
            part = os.read(self._answers, 1 << 16)
            assert part, "Chromium closed its pipe"
            self._received += part
        data, _, self._received = self._received.partition(b"\0")
        message = json.loads(data)
        self._notice(message.get("method"), message.get("params", {}))
        return message

    def _notice(self, event, details):
        complaint = event in ("Log.entryAdded", "Runtime.exceptionThrown", "Network.loadingFailed")
        complaint |= event == "Runtime.consoleAPICalled" and details["type"] in (
            "error",
            "warning",
            "assert",
        )
        complaint |= event == "Network.requestWillBeSent" and not details["request"][
            "url"
        ].startswith(("file:", "data:"))
        if complaint:
            self.problems.append(details)
