from os import PathLike
from types import TracebackType
from typing import final

@final
class Service:
    """A service's connection to the node's host agent."""

    def __new__(
        cls,
        name: str,
        *,
        instance: str | None = None,
        labels: dict[str, str] | None = None,
        socket: str | PathLike[str] | None = None,
        max_series: int | None = None,
        max_label_sets: int | None = None,
        max_regions: int | None = None,
        process_metrics: bool = True,
    ) -> Service: ...
    def counter(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        unit: str | None = None,
        aggregation: str | None = None,
        read_every_ms: int = 0,
    ) -> Counter: ...
    def up_down_counter(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        unit: str | None = None,
        aggregation: str | None = None,
        read_every_ms: int = 0,
    ) -> UpDownCounter: ...
    def gauge(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        unit: str | None = None,
        aggregation: str | None = None,
        read_every_ms: int = 0,
    ) -> Gauge: ...
    def histogram(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        unit: str | None = None,
        parts_per_unit: int = 1,
        sub_bits: int = 2,
        max_bits: int = 32,
        aggregation: str | None = None,
        read_every_ms: int = 0,
    ) -> Histogram: ...
    def span(
        self,
        name: str,
        *,
        kind: str = "internal",
        traceparent: str | None = None,
        tracestate: str | None = None,
        parent: Span | None = None,
    ) -> Span: ...
    def trigger(self, trace: str, reason: str) -> None: ...
    def set_subject(self, metric: str, text: str) -> None: ...
    def remove(self, handle: Counter | UpDownCounter | Gauge | Histogram) -> None: ...
    def status(self) -> Status: ...
    def close(self) -> None: ...
    def __enter__(self) -> Service: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class Counter:
    """A value that only grows."""

    @property
    def detached(self) -> str | None: ...
    @property
    def value(self) -> int: ...
    def add(self, count: int = 1) -> None: ...

@final
class UpDownCounter:
    """A value that grows and falls in steps."""

    @property
    def detached(self) -> str | None: ...
    @property
    def value(self) -> int: ...
    def add(self, difference: int = 1) -> None: ...

@final
class Gauge:
    """A value that is measured elsewhere."""

    @property
    def detached(self) -> str | None: ...
    @property
    def value(self) -> float: ...
    def set(self, value: float) -> None: ...
    def add(self, difference: float) -> None: ...

@final
class Histogram:
    """A distribution of values."""

    @property
    def detached(self) -> str | None: ...
    @property
    def count(self) -> int: ...
    @property
    def sum(self) -> int: ...
    def observe(self, value: int) -> None: ...
    def observe_ns(self, ns: int) -> None: ...
    def observe_seconds(self, seconds: float) -> None: ...

@final
class Span:
    """A piece of a request's work. A block ends it, and an exception in it is an error."""

    @property
    def traceparent(self) -> str | None: ...
    @property
    def tracestate(self) -> str | None: ...
    def set(self, key: str, value: str | int | float | bool) -> None: ...
    def event(self, name: str, attributes: dict[str, str | int | float | bool] | None = None) -> None: ...
    def fail(self, message: str = "") -> None: ...
    def keep(self, reason: str) -> None: ...
    def end(self) -> None: ...
    def __enter__(self) -> Span: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

@final
class Status:
    """A service's connection, counts and problems at one moment. str() has all of it."""

    @property
    def connection(self) -> str: ...
    @property
    def agent(self) -> int | None: ...
    @property
    def connections(self) -> int: ...
    @property
    def protocol_errors(self) -> int: ...
    @property
    def series(self) -> int: ...
    @property
    def pending_release(self) -> int: ...
    @property
    def detached(self) -> int: ...
    @property
    def regions(self) -> int: ...
    @property
    def region_bytes(self) -> int: ...
    @property
    def forked(self) -> bool: ...
    @property
    def problems(self) -> list[str]: ...

def current_span() -> Span | None:
    """The span of the innermost block, in this thread and task; None outside of all."""
