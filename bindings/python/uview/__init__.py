"""A service's metrics in shared memory, which the node's host agent passes to the NIC agent.

    import uview

    with uview.Service("payment", labels={"version": "1.2"}) as service:
        requests = service.counter("http.server.requests", labels={"route": "/pay"}, unit="{request}")
        duration = service.histogram("http.server.request.duration", unit="s", parts_per_unit=1_000_000)

        @uview.timed(duration)
        def pay():
            requests.add()

        with service.span("POST /pay", kind="server") as span:      # a trace, which goes to the host agent
            span.set("amount", 12)

Nothing waits for an agent, and nothing fails because there is none: print(service.status()) says what is missing.

After a fork (gunicorn, uwsgi, multiprocessing), handles of the parent go on writing the parent's metrics, and no count is
lost. A worker that is to be a replica of its own opens a Service of its own after the fork.
"""

from __future__ import annotations

import functools
import inspect
import time
from types import TracebackType
from typing import Any, Callable, TypeVar

from uview._uview import Counter, Gauge, Histogram, Service, Span, Status, UpDownCounter, current_span

__all__ = ["Counter", "Gauge", "Histogram", "Service", "Span", "Status", "UpDownCounter", "current_span", "timed"]

Function = TypeVar("Function", bound=Callable[..., Any])


class timed:
    """Observes how long something takes, also if it raises: `with timed(histogram):`, or a decorator of functions and of
    coroutine functions."""

    __slots__ = ("_histogram", "_started")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._started = 0

    def __enter__(self) -> timed:
        self._started = time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._histogram.observe_ns(time.perf_counter_ns() - self._started)

    def __call__(self, function: Function) -> Function:
        histogram = self._histogram
        # Each call has a time of its own: calls overlap.
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*arguments: Any, **named: Any) -> Any:
                with timed(histogram):
                    return await function(*arguments, **named)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            with timed(histogram):
                return function(*arguments, **named)

        return called  # type: ignore[return-value]
