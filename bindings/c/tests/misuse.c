/* Calls that are wrong: each returns its code, leaves NULL in the place of the result, and says why. */
#include <stdio.h>
#include <string.h>
#include <uview.h>

static int failures;

static void expect(int holds, const char *what) {
    if (!holds) {
        printf("%s: %s\n", what, uview_last_problem());
        failures++;
    }
}

static int told(const char *text) {
    return strstr(uview_last_problem(), text) != NULL;
}

int main(void) {
    uview *service = (uview *)&failures;
    expect(strcmp(uview_last_problem(), "") == 0, "no problem at the beginning");
    expect(uview_open(NULL, NULL, &service) == UVIEW_NULL && !service && told("name"), "no name");
    expect(uview_open("a", NULL, NULL) == UVIEW_NULL && told("opened"), "no place for the service");
    expect(uview_open("\xff", NULL, &service) == UVIEW_NOT_TEXT && !service && told("UTF-8"), "a name of bytes");
    uview_options later = {.socket = "/nonexistent/services.sock", .reserved = {0, 1}};
    expect(uview_open("a", &later, &service) == UVIEW_OUT_OF_RANGE && !service && told("reserved"), "a later option");
    uview_label keyless[] = {{NULL, "x"}};
    uview_options labelled = {.labels = keyless, .label_count = 1};
    expect(uview_open("a", &labelled, &service) == UVIEW_NULL && !service && told("key"), "a label without a key");
    uview_options counted = {.label_count = 1};
    expect(uview_open("a", &counted, &service) == UVIEW_NULL && told("labels"), "labels that are not there");

    uview_options options = {.socket = "/nonexistent/services.sock"};
    expect(uview_open("a", &options, &service) == UVIEW_OK && service, "a service");
    uview_counter *counter = (uview_counter *)&failures;
    expect(uview_register_counter(NULL, "c", NULL, &counter) == UVIEW_NULL && !counter, "no service");
    expect(uview_register_counter(service, NULL, NULL, &counter) == UVIEW_NULL && !counter, "no metric's name");
    expect(uview_register_counter(service, "c", NULL, NULL) == UVIEW_NULL, "no place for the counter");
    uview_metric bytes = {.unit = "\xc3("};
    expect(uview_register_counter(service, "c", &bytes, &counter) == UVIEW_NOT_TEXT && !counter, "a unit of bytes");
    uview_metric wide = {.sub_bits = 6, .max_bits = 32};
    uview_histogram *histogram;
    expect(uview_register_histogram(service, "h", &wide, &histogram) == UVIEW_OUT_OF_RANGE && !histogram, "a scale");
    expect(uview_register_counter(service, "in valid", NULL, &counter) == UVIEW_DETACHED && counter, "a bad name");
    uview_counter_add(counter, 2);
    expect(uview_counter_get(counter) == 2, "a detached counter counts");

    uview_span *span = (uview_span *)&failures;
    expect(uview_span_begin(service, NULL, NULL, &span) == UVIEW_NULL && !span && told("name"), "no span's name");
    expect(uview_span_begin(service, "s", NULL, NULL) == UVIEW_NULL && told("begun"), "no place for the span");
    uview_span_options strange = {.kind = 9};
    expect(uview_span_begin(service, "s", &strange, &span) == UVIEW_OUT_OF_RANGE && !span && told("9"), "a kind of span");
    uview_span_options reserved = {.reserved = {1}};
    expect(uview_span_begin(service, "s", &reserved, &span) == UVIEW_OUT_OF_RANGE && !span, "a span's later option");
    uview_span_options callers = {.traceparent = "\xff"};
    expect(uview_span_begin(service, "s", &callers, &span) == UVIEW_NOT_TEXT && !span, "a traceparent of bytes");
    expect(uview_span_begin(service, "s", NULL, &span) == UVIEW_OK && span, "a span");
    expect(uview_span_text(span, NULL, "x") == UVIEW_NULL && told("key"), "an attribute without a key");
    expect(uview_span_text(span, "k", "\xff") == UVIEW_NOT_TEXT && told("value"), "an attribute of bytes");
    expect(uview_span_event(span, NULL) == UVIEW_NULL && told("name"), "an event without a name");
    expect(uview_span_event(NULL, "x") == UVIEW_OK, "an event of no span");
    expect(uview_span_event_integer(span, "k", 1) == UVIEW_OK, "an attribute of no event");
    expect(uview_span_event(span, "x") == UVIEW_OK, "an event");
    expect(uview_span_event_text(span, NULL, "x") == UVIEW_NULL && told("key"), "an event's attribute without a key");
    expect(uview_span_event_text(span, "k", "\xff") == UVIEW_NOT_TEXT && told("value"), "an event's attribute of bytes");
    expect(uview_span_event_double(span, "k", 0.5) == UVIEW_OK, "an event's attribute");
    expect(uview_span_fail(span, NULL) == UVIEW_OK, "a failure without a message");
    expect(uview_span_keep(span, NULL) == UVIEW_NULL && told("reason"), "no reason");
    char parent[60], cut[10];
    expect(uview_span_traceparent(span, parent, sizeof parent) == 55 && strlen(parent) == 55, "a traceparent");
    expect(uview_span_traceparent(span, cut, sizeof cut) == 55 && strlen(cut) == 9, "a cut traceparent");
    expect(uview_span_tracestate(span, cut, sizeof cut) == 0 && !cut[0], "no tracestate");
    uview_span_leave(span);
    uview_span_enter(span);
    uview_span_enter(span);
    uview_span *within, *after;
    expect(uview_span_begin(service, "within", NULL, &within) == UVIEW_OK, "a span within");
    char trace[60];
    uview_span_traceparent(within, trace, sizeof trace);
    expect(memcmp(trace, parent, 36) == 0 && memcmp(trace, parent, 55) != 0, "a span within is of the same trace");
    uview_span_end(within);
    uview_span_end(span);
    expect(uview_span_begin(service, "after", NULL, &after) == UVIEW_OK, "a span after");
    uview_span_traceparent(after, trace, sizeof trace);
    expect(memcmp(trace, parent, 36) != 0, "what has ended is current no more, however often it was entered");
    uview_span_end(after);
    expect(uview_trigger(service, "0af7", "x") == UVIEW_OUT_OF_RANGE && told("32"), "an id that is none");
    expect(uview_trigger(NULL, "0af7", "x") == UVIEW_NULL && told("service"), "no service to keep a trace");
    expect(uview_set_subject(service, NULL, "x") == UVIEW_NULL && told("metric"), "no metric to be about something");

    /* NULL in place of a handle or service. */
    expect(uview_span_text(NULL, "k", "v") == UVIEW_OK && uview_span_keep(NULL, "x") == UVIEW_OK, "no span");
    expect(uview_span_traceparent(NULL, parent, sizeof parent) == 0 && !parent[0], "no span's context");
    uview_span_enter(NULL);
    uview_span_leave(NULL);
    uview_span_end(NULL);
    uview_counter_add(NULL, 1);
    uview_up_down_add(NULL, 1);
    uview_gauge_set(NULL, 1);
    uview_gauge_add(NULL, 1);
    uview_histogram_observe(NULL, 1);
    uview_histogram_observe_ns(NULL, 1);
    expect(uview_counter_get(NULL) == 0 && uview_histogram_count(NULL) == 0, "NULL counts nothing");
    uview_sharded_add(NULL, 1);
    expect(uview_sharded_get(NULL) == 0, "NULL has no words");
    uview_sharded_release(NULL);
    uview_counter_release(NULL);
    uview_gauge_remove(service, NULL);
    uview_counter_remove(NULL, NULL);
    uview_changed(NULL);
    uview_close(NULL);
    uview_state state;
    expect(uview_status(NULL, &state) == UVIEW_NULL && uview_status(service, NULL) == UVIEW_NULL, "no status");

    /* A text is cut where it has to be, between characters, and always ends. */
    char text[8];
    memset(text, 'x', sizeof text);
    size_t length = uview_status_text(service, text, sizeof text);
    expect(length > sizeof text && strlen(text) == sizeof text - 1, "a cut text");
    expect(uview_status_text(service, text, 0) == length && text[0] == 'a', "a buffer of no bytes");
    expect(uview_status_text(service, text, 1) == length && text[0] == 0, "a buffer of one byte");
    expect(uview_status_text(NULL, text, sizeof text) == 0, "the text of no service");

    uview_close(service);
    uview_counter_add(counter, 1);
    expect(uview_counter_get(counter) == 3, "a handle outlives its service");
    uview_counter_release(counter);
    puts(failures ? "not every misuse is told" : "every misuse is told");
    return failures != 0;
}
