"""The driver of the Python client: bindings/conformance/src/lib.rs has its commands."""

import os
import sys
import threading

import uview

SERVICE_OPTIONS = {"series": "max_series", "label_sets": "max_label_sets", "regions": "max_regions"}
NUMBERS = {"parts": "parts_per_unit", "sub_bits": "sub_bits", "max_bits": "max_bits", "every": "read_every_ms"}


def pairs(words):
    """Options as a dictionary, and labels, of which each key may come once only."""
    options, labels = {}, {}
    for word in words:
        key, value = word.split("=", 1)
        if key.startswith("label:"):
            if key[6:] in labels:
                raise Unsupported
            labels[key[6:]] = value
        else:
            options[key] = value
    return options, labels


def attributes(words):
    """Attributes as a dictionary: a value that is a whole or another number, true or false, is that."""
    return dict((key, typed(value)) for key, value in (word.split("=", 1) for word in words))


def typed(value):
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(value, value)


class Unsupported(Exception):
    """What a dictionary cannot say, and counters for threads that run at once."""


class Driver:
    """What is open, and the handles by name."""

    def __init__(self):
        self.service = None
        self.handles = {}
        self.spans = {}
        self.forked = False

    def open(self, name, *words):
        options, labels = pairs(words)
        named = {SERVICE_OPTIONS[key]: int(options.pop(key)) for key in list(options) if key in SERVICE_OPTIONS}
        self.service = uview.Service(name, labels=labels, **options, **named)

    def register(self, kind, handle, name, *words):
        options, labels = pairs(words)
        named = {NUMBERS[key]: int(options.pop(key)) for key in list(options) if key in NUMBERS}
        registered = getattr(self.service, kind)(name, labels=labels, **options, **named)
        self.handles[handle] = registered
        return f"detached {registered.detached}" if registered.detached else None

    def span(self, handle, name, *words):
        options, _ = pairs(words)
        if "parent" in options:
            options["parent"] = self.spans[options["parent"]]
        self.spans[handle] = self.service.span(name, **options)

    def context(self, handle):
        return f"ok {self.spans[handle].traceparent}"

    def write(self, handle, text):
        handle = self.handles[handle]
        if isinstance(handle, uview.Gauge):
            handle.set(float(text))
        elif isinstance(handle, uview.Histogram):
            handle.observe(int(text))
        else:
            handle.add(int(text))

    def get(self, handle):
        handle = self.handles[handle]
        if isinstance(handle, uview.Histogram):
            return f"ok {handle.count} {handle.sum}"
        return f"ok {handle.value!r}"

    def threads(self, handle, number, times):
        handle = self.handles[handle]
        one = handle.observe if isinstance(handle, uview.Histogram) else handle.add

        def often():
            for _ in range(int(times)):
                one(1)

        threads = [threading.Thread(target=often) for _ in range(int(number))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def status(self):
        status = self.service.status()
        fields = ["connection", "series", "detached", "regions", "connections"]
        text = " ".join(f"{field}={getattr(status, field)}" for field in fields)
        return f"ok {text} forked={int(status.forked)} problems={'; '.join(status.problems)}"

    def fork(self):
        child = os.fork()
        if child == 0:
            self.forked = True
            return None
        _, ended = os.waitpid(child, 0)
        return None if ended == 0 else f"error the child ended with {ended}"

    def obey(self, command, *words):
        if command == "sharded":
            raise Unsupported
        kinds = {"counter": "counter", "updown": "up_down_counter", "gauge": "gauge", "histogram": "histogram"}
        if command in kinds:
            return self.register(kinds[command], *words)
        if command in ("add", "set", "observe"):
            return self.write(*words)
        if command in ("attribute", "integer"):
            handle, key, value = words
            return self.spans[handle].set(key, int(value) if command == "integer" else value)
        if command == "event":
            handle, name, *rest = words
            return self.spans[handle].event(name, attributes(rest))
        if command in ("fail", "keep"):
            return getattr(self.spans[words[0]], command)(words[1])
        if command == "enter":
            self.spans[words[0]].__enter__()
            return None
        if command == "leave":
            return self.spans.pop(words[0]).__exit__(None, None, None)
        if command == "end":
            return self.spans.pop(words[0]).end()
        if command == "trigger":
            return self.service.trigger(*words)
        if command == "subject":
            return self.service.set_subject(*words)
        if command == "close":
            return self.service.close()
        if command == "remove":
            return self.service.remove(self.handles.pop(words[0]))
        if command == "release":
            del self.handles[words[0]]
            return None
        return {
            "open": self.open,
            "get": self.get,
            "threads": self.threads,
            "span": self.span,
            "context": self.context,
            "status": self.status,
            "fork": self.fork,
        }[command](*words)


def main():
    driver = Driver()
    # Without a buffer: nothing may be left in one at a fork.
    with open(0, "rb", buffering=0, closefd=False) as commands:
        for line in commands:
            words = line.decode().split()
            if driver.forked and words == ["exit"]:
                # Without the interpreter's end, as in a server's worker.
                os._exit(0)
            try:
                reply = driver.obey(*words) or "ok"
            except Unsupported:
                reply = "unsupported"
            except (ValueError, OverflowError, TypeError) as error:
                reply = f"error {error}"
            sys.stdout.write(reply + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
