"""What all panels share: keys, background work with progress and stop, errors as one sentence, a still for exported pages."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any, Final

import anywidget
import ipywidgets as w
import traitlets

from workbench.display import card
from workbench.errors import WorkbenchError
from workbench.text import inert, inert_html

STATIC: Final = resources.files("workbench.widgets").joinpath("static")
Report = Callable[[int, int], None]


class LoopThread:
    """An event loop of its own, so that work goes on while a cell runs and the page stays alive while work goes on."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="workbench-widgets", daemon=True).start()

    def start(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)


@cache
def background() -> LoopThread:
    """The loop that all panels of this kernel share."""
    return LoopThread()


def sentence(error: BaseException) -> str:
    """An error as one line of inert HTML. Our own errors say what to do; others are named."""
    text = str(error).splitlines()[0] if str(error) else "no message"
    return f"<span class='wb-error'>✗ {inert_html(text if isinstance(error, WorkbenchError) else f'{type(error).__name__}: {text}')}</span>"


def picture(png: bytes, alt: str) -> str:
    """A PNG as an image that needs no network."""
    return f'<img class="wb-figure" alt="{inert_html(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode("ascii")}">'


def file_name(text: str) -> str:
    """*text* as a file name: letters, digits, - and _; anything else becomes _."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in text)


def inert_options(options: Iterable[Any]) -> list[tuple[str, Any]]:
    """Choices whose labels are inert; values stay as they are."""
    return [(inert(o[0]), o[1]) if isinstance(o, tuple) else (inert(o), o) for o in options]


def dropdown(label: str, options: Iterable[Any], value: Any = None, *, width: str = "250px") -> w.Dropdown:
    """A labelled choice; *options* are values or (label, value) pairs."""
    pairs = inert_options(options)
    first = pairs[0][1] if pairs else None
    style, layout = {"description_width": "initial"}, w.Layout(width=width)
    return w.Dropdown(options=pairs, value=first if value is None else value, description=label, style=style, layout=layout)


class KeyPad(anywidget.AnyWidget):
    """Single keys from the panel around it (class ``wb-keys``); a hint line on screen. Buttons must always suffice."""

    _esm = STATIC.joinpath("keypad.js").read_text("utf-8")
    hint = traitlets.Unicode().tag(sync=True)
    accepts = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, on_key: Callable[[str], None], *, accepts: Sequence[str], hint: str) -> None:
        super().__init__(hint=hint, accepts=list(accepts))
        self.on_msg(lambda _, content, __: on_key(str(content.get("key", ""))) if content.get("key") in self.accepts else None)

    def __repr__(self) -> str:
        return f"KeyPad({len(self.accepts)} keys)"


class Work(w.HBox):
    """One coroutine in the background: progress with ETA, a stop button, errors as one sentence."""

    def __init__(self) -> None:
        self.bar = w.IntProgress(max=1, layout=w.Layout(width="180px"))
        self.halt = w.Button(description="■ Stop", disabled=True)
        self.status = w.HTML("ready")
        self.status.add_class("wb-status")
        self._future: Future[Any] | None = None
        self._over = threading.Event()
        self._over.set()
        self.halt.on_click(lambda _: self.stop())
        super().__init__([self.bar, self.halt, self.status])

    def __repr__(self) -> str:
        return "Work()"

    @property
    def busy(self) -> bool:
        return not self._over.is_set()

    def start(self, work: Callable[[Report], Coroutine[Any, Any, Any]], then: Callable[[Any], str]) -> None:
        """Run ``work(report)`` and hand its result to *then*, which says what came of it. One at a time."""
        if self.busy:
            self.status.value = "still working: stop it first, or wait"
            return
        began = time.monotonic()

        def report(done: int, total: int) -> None:
            left = (time.monotonic() - began) / done * (total - done) if done else None
            self.bar.max, self.bar.value = max(total, 1), done
            self.status.value = f"{done} of {total}{'' if left is None else f', about {left:.0f} s left'}"

        async def go() -> None:
            try:
                result = await work(report)
                self.status.value = inert_html(then(result))
            except asyncio.CancelledError:
                self.status.value = "stopped: what is done is kept, running again goes on from there"
            except Exception as error:  # shown, because a callback's exception is seen by nobody
                self.status.value = sentence(error)
            finally:
                self.halt.disabled = True
                self._over.set()

        self.halt.disabled, self.status.value, self.bar.value = False, "working…", 0
        self._over.clear()
        self._future = background().start(go())

    def stop(self) -> None:
        if self._future is not None:
            self._future.cancel()

    def wait(self, timeout: float = 60) -> None:
        """Block until the work is over: for scripts and tests, never in a callback."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the panel was still working after {timeout:g} s")


class Panel(w.VBox):
    """A widget with a stable repr that is shown as a still where no kernel runs (exported HTML, GitHub)."""

    message: w.HTML

    def build(self, children: Sequence[w.Widget]) -> None:
        """Put the parts on the panel, an empty error line last."""
        css = w.HTML(f"<style>{STATIC.joinpath('panel.css').read_text('utf-8')}</style>", layout=w.Layout(display="none"))
        self.message = w.HTML()
        w.VBox.__init__(self, [css, *children, self.message])
        self.add_class("wb-panel")

    def summary(self) -> str:
        """What the panel is about, in a few stable words."""
        return ""

    def still(self) -> str:
        """The panel without its controls, as inert HTML."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary()})"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        note = f"<p class='wb-dim'>{inert_html(repr(self))}: a still. Run this notebook in JupyterLab for the live panel.</p>"
        return bundle | {"text/plain": repr(self), "text/html": card(self.still(), note)}

    def button(self, label: str, do: Callable[[], Any], **options: Any) -> w.Button:
        """A button whose errors show in the panel."""

        def press(_: Any) -> None:
            with self.guard():
                do()

        made = w.Button(description=label, **options)
        made.on_click(press)
        return made

    def row_of(self, actions: dict[str, Callable[[], Any]]) -> w.HBox:
        """A row of buttons, label -> what it does."""
        return w.HBox([self.button(label, do) for label, do in actions.items()])

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Show an error of a callback as one sentence in the panel: the notebook would swallow it."""
        try:
            self.message.value = ""
            yield
        except Exception as error:
            self.message.value = sentence(error)
