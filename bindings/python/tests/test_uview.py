"""What the package adds to the client: `python -m unittest discover bindings/python/tests`. The shared list of cases
runs too if UVIEW_CLIENT_CASES names the program client-cases, which `cargo build -p conformance` makes."""

import ast
import asyncio
import contextvars
import inspect
import multiprocessing
import os
import pathlib
import subprocess
import sys
import unittest

import uview
from uview import _uview

NOWHERE = "/nonexistent/services.sock"


def opened(**options):
    return uview.Service("payment", socket=NOWHERE, **options)


class Handles(unittest.TestCase):
    def test_a_service_is_closed_by_its_block_and_handles_go_on(self):
        with opened() as service:
            requests = service.counter("requests", labels={"route": "/pay"}, unit="{request}")
            requests.add()
            self.assertEqual(service.status().series, 1)

        requests.add(2)

        self.assertEqual(requests.value, 3)
        with self.assertRaisesRegex(ValueError, "the service is closed"):
            service.status()
        service.close()

    def test_a_value_of_the_wrong_type_or_range_is_refused_and_changes_nothing(self):
        service = opened()
        counter, gauge, histogram = service.counter("c"), service.gauge("g"), service.histogram("h", unit="s")

        for wrong, error in [(-1, OverflowError), (2**64, OverflowError), ("1", TypeError), (1.5, TypeError)]:
            with self.assertRaises(error):
                counter.add(wrong)
        with self.assertRaises(TypeError):
            gauge.set("much")
        for seconds in [-1.0, float("nan"), float("inf")]:
            with self.assertRaises(ValueError):
                histogram.observe_seconds(seconds)

        self.assertEqual((counter.value, gauge.value, histogram.count), (0, 0.0, 0))

    def test_a_detached_handle_says_why(self):
        service = opened(max_series=1)
        self.assertIsNone(service.counter("one").detached)

        more = service.counter("more")
        more.add(2)

        self.assertIn("more than 1 series", more.detached)
        self.assertEqual(more.value, 2)
        self.assertIn("more than 1 series", service.status().problems[0])
        self.assertIn("more than 1 series", str(service.status()))

    def test_durations_are_in_parts_of_the_unit(self):
        histogram = opened().histogram("duration", unit="s", parts_per_unit=1_000_000)

        histogram.observe_seconds(0.25)
        histogram.observe_ns(1_500)
        histogram.observe(3)

        self.assertEqual((histogram.count, histogram.sum), (3, 250_000 + 1 + 3))


class Timed(unittest.TestCase):
    def setUp(self):
        self.histogram = opened().histogram("duration", unit="ns")

    def test_a_function_is_timed_also_if_it_raises_and_keeps_its_name(self):
        @uview.timed(self.histogram)
        def divide(a, b):
            """Divides numbers."""
            return a / b

        self.assertEqual(divide(4, b=2), 2)
        with self.assertRaises(ZeroDivisionError):
            divide(1, 0)

        self.assertEqual((divide.__name__, divide.__doc__), ("divide", "Divides numbers."))
        self.assertEqual(self.histogram.count, 2)

    def test_coroutines_are_timed_until_they_end_and_may_overlap(self):
        gate = []

        @uview.timed(self.histogram)
        async def wait(event):
            gate.append(self.histogram.count)
            await event.wait()
            return 7

        async def three():
            event = asyncio.Event()
            tasks = [asyncio.ensure_future(wait(event)) for _ in range(3)]
            while len(gate) < 3:
                await asyncio.sleep(0)
            event.set()
            return await asyncio.gather(*tasks)

        self.assertEqual(asyncio.run(three()), [7, 7, 7])
        self.assertEqual(gate, [0, 0, 0], "nothing is observed before the end")
        self.assertEqual(self.histogram.count, 3)

    def test_calls_within_calls_are_timed_each(self):
        @uview.timed(self.histogram)
        def down(depth):
            return down(depth - 1) if depth else 0

        down(4)
        with uview.timed(self.histogram):
            pass

        self.assertEqual(self.histogram.count, 6)


class Spans(unittest.TestCase):
    CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def test_an_exception_ends_the_span_of_its_block_and_goes_on(self):
        service = opened()

        with self.assertRaises(ZeroDivisionError):
            with service.span("divide") as span:
                span.set("by", 0)
                1 / 0
        span.set("after", True)
        span.event("after its end", {"by": 0, "share": 0.5, "late": True, "why": "a test"})
        span.fail("after its end")
        span.end()

        self.assertEqual(service.status().problems, [])

    def test_headers_go_on_with_the_spans_own_id(self):
        service = opened()
        with service.span("POST /pay", kind="server", traceparent=self.CALLER, tracestate="a=b") as pay:
            with service.span("GET /stock", kind="client", parent=pay) as stock:
                pass

        ids = [span.traceparent.split("-") for span in (pay, stock)]
        self.assertEqual({trace for _, trace, _, _ in ids}, {self.CALLER.split("-")[1]})
        self.assertEqual(len({span for _, _, span, _ in ids} | {self.CALLER.split("-")[2]}), 3)
        self.assertEqual((pay.tracestate, stock.tracestate), ("a=b", "a=b"))
        self.assertIsNone(service.span("alone").tracestate)

    def test_a_span_in_a_block_is_within_the_blocks_span_of_its_own_task(self):
        service = opened()

        async def task(name):
            with service.span(name) as span:
                await asyncio.sleep(0)
                within = service.span("within")
                return uview.current_span() is span, span.traceparent[:35], within.traceparent[:35]

        async def both():
            return await asyncio.gather(task("a"), task("b"))

        self.assertIsNone(uview.current_span())
        with service.span("outer", traceparent=self.CALLER) as outer:
            self.assertIs(uview.current_span(), outer)
            self.assertIsNone(contextvars.Context().run(uview.current_span))
            self.assertEqual(asyncio.run(both()), [(True, self.CALLER[:35], self.CALLER[:35])] * 2)
            self.assertIs(uview.current_span(), outer)

        self.assertIsNone(uview.current_span())
        self.assertNotEqual(service.span("after").traceparent[:35], self.CALLER[:35])

    def test_a_block_that_ends_by_an_exception_or_in_another_context_leaves_its_span(self):
        service = opened()

        with self.assertRaises(ZeroDivisionError), service.span("divide"):
            1 / 0
        self.assertIsNone(uview.current_span())

        def block():
            with service.span("generator") as span:
                yield span

        generator = block()
        contextvars.Context().run(next, generator)
        with service.span("here") as here:
            generator.close()
            self.assertIs(uview.current_span(), here)
        self.assertIsNone(uview.current_span())

    def test_what_is_wrong_is_refused(self):
        service = opened()
        span = service.span("a")

        for wrong in [lambda: service.span("a", kind="strange"), lambda: service.trigger("0af7", "why")]:
            with self.assertRaises(ValueError):
                wrong()
        for wrong in [
            lambda: span.set("list", []),
            lambda: span.set("none", None),
            lambda: span.event(None),
            lambda: span.event("a", {"list": []}),
            lambda: span.event("a", {1: "a"}),
            lambda: span.event("a", ["a"]),
            lambda: span.fail(None),
        ]:
            with self.assertRaises(TypeError):
                wrong()


class Processes(unittest.TestCase):
    def test_workers_that_were_forked_count_into_the_parents_metrics(self):
        requests = opened().counter("requests")

        def work():
            for _ in range(1_000):
                requests.add()

        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

        self.assertEqual([worker.exitcode for worker in workers], [0] * 4)
        self.assertEqual(requests.value, 4_000)

    def test_a_program_that_never_closes_ends(self):
        program = "import uview; uview.Service('payment', socket='/nonexistent').counter('c').add()"

        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class Stubs(unittest.TestCase):
    def test_the_stubs_have_the_classes_methods_and_arguments_of_the_module(self):
        path = pathlib.Path(_uview.__file__).parent / "_uview.pyi"
        classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]

        def names(function):
            given = function.args
            of_stub = [argument.arg for argument in given.args[1:] + given.kwonlyargs]
            return of_stub

        for node in classes:
            there = getattr(_uview, node.name)
            functions = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            public = {name for name in vars(there) if not name.startswith("_")}
            self.assertEqual(public, {f.name for f in functions if not f.name.startswith("_")}, node.name)
            for function in functions:
                if function.decorator_list or function.name in ("__new__", "__enter__", "__exit__"):
                    continue
                parameters = inspect.signature(getattr(there, function.name)).parameters
                self.assertEqual([name for name in parameters if name != "self"], names(function), function.name)
        self.assertEqual(
            {node.name for node in classes}, {name for name, value in vars(_uview).items() if inspect.isclass(value)}
        )
        new = next(f for f in classes[0].body if isinstance(f, ast.FunctionDef) and f.name == "__new__")
        self.assertEqual(list(inspect.signature(_uview.Service).parameters), names(new))
        self.assertTrue((path.parent / "py.typed").exists())


class List(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("UVIEW_CLIENT_CASES"), "UVIEW_CLIENT_CASES names no program")
    def test_the_python_client_does_what_the_list_says(self):
        driver = pathlib.Path(__file__).parent / "driver.py"
        command = [os.environ["UVIEW_CLIENT_CASES"], sys.executable, str(driver)]

        subprocess.run(command, check=True, timeout=600)


if __name__ == "__main__":
    unittest.main()
