/*
 * uview: a service's metrics in shared memory, which the node's host agent passes to the NIC agent.
 *
 *     uview *service;
 *     uview_counter *requests;
 *     uview_label labels[] = {{"route", "/pay"}};
 *     uview_metric metric = {.unit = "{request}", .labels = labels, .label_count = 1};
 *
 *     uview_open("payment", NULL, &service);
 *     uview_register_counter(service, "http.server.requests", &metric, &requests);
 *     uview_counter_add(requests, 1);
 *
 * Text is UTF-8 and ends with 0; the library copies it. Structures of options begin as zeros ({0}). Functions that
 * write may be called by any thread at any time; NULL in place of a service or handle does nothing. A handle must not
 * be used after its release or removal, a service not after its end, and neither is copied.
 *
 * Nothing waits for an agent, and nothing fails because there is none: see uview_status.
 *
 * After fork, handles of the parent go on writing the parent's metrics in the child, and nothing is lost. To register
 * in the child, close the service there and open it again.
 */
#ifndef UVIEW_H
#define UVIEW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns. Below 0 nothing was done, and the place for the result holds NULL. */
#define UVIEW_OK 0
#define UVIEW_DETACHED 1      /* the handle works, and no agent reads it: uview_last_problem says why */
#define UVIEW_NULL (-1)       /* an argument must not be NULL */
#define UVIEW_NOT_TEXT (-2)   /* text is not UTF-8 */
#define UVIEW_OUT_OF_RANGE (-3)
#define UVIEW_INTERNAL (-4)   /* an error of the library */

/* The state of the connection. */
#define UVIEW_OFF 0           /* the service's name is invalid, or there is no thread; in a forked child */
#define UVIEW_WAITING 1       /* no agent is reachable; tried again every 50 ms to 2 s */
#define UVIEW_REGISTERING 2
#define UVIEW_REGISTERED 3

/* What a span is for. */
#define UVIEW_SPAN_INTERNAL 1 /* work within the service */
#define UVIEW_SPAN_SERVER 2   /* a request that the service answers */
#define UVIEW_SPAN_CLIENT 3   /* a request that the service makes */
#define UVIEW_SPAN_PRODUCER 4 /* a message that the service sends */
#define UVIEW_SPAN_CONSUMER 5 /* a message that the service receives */

/* A service's connection to the node's host agent. */
typedef struct uview uview;

/* Handles. Their slots are written by the functions below and by nothing else. */
typedef struct uview_counter {
    uint64_t *slot;
} uview_counter;

typedef struct uview_up_down {
    uint64_t *slot;
} uview_up_down;

typedef struct uview_gauge {
    uint64_t *slot;
} uview_gauge;

typedef struct uview_histogram uview_histogram;

/* A counter that many threads add to at once: each has a word of its own, and the reader sums them. */
typedef struct uview_sharded uview_sharded;

/* A span that has begun. Used by one thread at a time. */
typedef struct uview_span uview_span;

typedef struct uview_label {
    const char *key;
    const char *value;
} uview_label;

/* What a service may say about itself. */
typedef struct uview_options {
    const char *instance;         /* the replica's name; NULL: host name and process id */
    const char *socket;           /* NULL: $UVIEW_SOCKET, or /run/uview/services.sock */
    const uview_label *labels;    /* at most 16 */
    size_t label_count;
    size_t max_series;            /* 0: 4,096; further ones are detached */
    size_t max_label_sets;        /* of one metric; 0: 256; further ones share one series */
    size_t max_regions;           /* of shared memory; 0: 16, 11 MiB at most */
    uint64_t changes_every_ms;    /* not 0: all values change at once, and then uview_changed is called */
    int without_process_metrics;  /* not 0: the values are not about this process */
    uint64_t reserved[4];
} uview_options;

/* What a metric is like. */
typedef struct uview_metric {
    const char *unit;             /* UCUM: "s", "By", "{request}"; NULL: none */
    const uview_label *labels;    /* at most 16 */
    size_t label_count;
    uint64_t parts_per_unit;      /* histograms: 1000000 for seconds in microseconds; 0 is 1 */
    uint32_t sub_bits;            /* histograms: 2^sub_bits buckets per power of two, at most 5 */
    uint32_t max_bits;            /* histograms: up to 2^max_bits, above sub_bits, at most 48; both 0: 2 and 32 */
    const char *aggregation;      /* of replicas: "sum", "mean", "min", "max", or a quantile: "p90"; NULL: by kind */
    uint64_t read_every_ms;       /* how often it is worth reading; 0: in every row */
    uint64_t reserved[2];
} uview_metric;

/* What a span is like. */
typedef struct uview_span_options {
    const uview_span *parent;     /* a span of this process, whose trace goes on; NULL: the caller's */
    const char *traceparent;      /* of the request that is answered; NULL, or one that is none: that of the span that
                                     this thread has entered, and without one a trace begins */
    const char *tracestate;       /* the header of that name; NULL: none */
    int kind;                     /* UVIEW_SPAN_INTERNAL to UVIEW_SPAN_CONSUMER; 0: internal */
    uint64_t reserved[4];
} uview_span_options;

typedef struct uview_state {
    int connection;               /* UVIEW_OFF to UVIEW_REGISTERED */
    int forked;                   /* not 0: a forked child of the process that opened the service */
    uint64_t agent;               /* the run of the agent that has registered the service */
    uint64_t connections;         /* so far */
    uint64_t protocol_errors;     /* connections that ended with an invalid message of the agent */
    uint64_t series;
    uint64_t pending_release;     /* removed series whose slots are not free yet */
    uint64_t detached;            /* handles that no agent reads */
    uint64_t regions;
    uint64_t region_bytes;
    uint64_t problems;            /* different ones; uview_status_text has their text */
    uint64_t reserved[4];
} uview_state;

/* Opens the service `name`: letters, digits and _.-/: as OpenTelemetry's service.name. Never waits. `options` may be
 * NULL. A name that is not allowed is told by uview_status. */
int uview_open(const char *name, const uview_options *options, uview **opened);

/* Disconnects and frees `service`; takes milliseconds. Handles go on working, and are released on their own. */
void uview_close(uview *service);

/* With changes_every_ms: all values are now those of the next interval. */
void uview_changed(const uview *service);

/* The connection, counts and number of problems at this moment. */
int uview_status(const uview *service, uview_state *state);

/* The same as text for a log, with the problems. Writes at most `size` bytes with the 0 at their end, and returns the
 * length of the whole text without it, as snprintf does. */
size_t uview_status_text(const uview *service, char *buffer, size_t size);

/* Why this thread's last function that did not return UVIEW_OK did not. Never NULL; valid until the next such one. */
const char *uview_last_problem(void);

/* Register a metric, or find it: the same name, labels and kind lead to the same values. `options` may be NULL. */
int uview_register_counter(const uview *service, const char *name, const uview_metric *options, uview_counter **registered);
int uview_register_up_down(const uview *service, const char *name, const uview_metric *options, uview_up_down **registered);
int uview_register_gauge(const uview *service, const char *name, const uview_metric *options, uview_gauge **registered);
int uview_register_histogram(const uview *service, const char *name, const uview_metric *options, uview_histogram **registered);
int uview_register_sharded(const uview *service, const char *name, const uview_metric *options, uview_sharded **registered);

/* Frees a handle. Its series stays. */
void uview_counter_release(uview_counter *handle);
void uview_up_down_release(uview_up_down *handle);
void uview_gauge_release(uview_gauge *handle);
void uview_histogram_release(uview_histogram *histogram);
void uview_sharded_release(uview_sharded *counter);

/* Frees a handle and ends its series, for all of its handles: no agent reads what they write from then on. */
void uview_counter_remove(const uview *service, uview_counter *handle);
void uview_up_down_remove(const uview *service, uview_up_down *handle);
void uview_gauge_remove(const uview *service, uview_gauge *handle);
void uview_histogram_remove(const uview *service, uview_histogram *histogram);
void uview_sharded_remove(const uview *service, uview_sharded *counter);

/* Records a value, in parts of the unit. */
void uview_histogram_observe(const uview_histogram *histogram, uint64_t value);

/* Records a duration of so many nanoseconds, in parts of the unit: seconds, or ms, us, ns. */
void uview_histogram_observe_ns(const uview_histogram *histogram, uint64_t ns);

uint64_t uview_histogram_count(const uview_histogram *histogram);
uint64_t uview_histogram_sum(const uview_histogram *histogram);

/* Adds to the word of this thread, and sums all words. For counters of millions a second: each takes up to 1 KiB. */
void uview_sharded_add(const uview_sharded *counter, uint64_t count);
uint64_t uview_sharded_get(const uview_sharded *counter);

/* Adds to a gauge, again if another thread changed it meanwhile. */
void uview_gauge_add(const uview_gauge *gauge, double difference);

/* Begins a span. `options` may be NULL. UVIEW_DETACHED: there is no shared memory for it; its parent's trace goes on. */
int uview_span_begin(const uview *service, const char *name, const uview_span_options *options, uview_span **begun);

/* This thread works in the span from now on: those that it begins without a parent and a traceparent are within it.
 * Until uview_span_leave, or the end of the span, on the same thread. Spans may be left in any order. */
void uview_span_enter(uview_span *span);
void uview_span_leave(uview_span *span);

/* Adds an attribute. Of texts, up to 160 bytes are kept; what does not fit into 448 bytes is left out and counted. */
int uview_span_text(uview_span *span, const char *key, const char *value);
int uview_span_integer(uview_span *span, const char *key, int64_t value);
int uview_span_double(uview_span *span, const char *key, double value);

/* Says that something happened now. Events and their attributes take at most half of the 448 bytes. */
int uview_span_event(uview_span *span, const char *name);

/* Adds an attribute to the event that was said last; nothing if there is none, or if it was left out. */
int uview_span_event_text(uview_span *span, const char *key, const char *value);
int uview_span_event_integer(uview_span *span, const char *key, int64_t value);
int uview_span_event_double(uview_span *span, const char *key, double value);

/* Sets the status to error. `message` may be NULL; the first one stays. */
int uview_span_fail(uview_span *span, const char *message);

/* Asks the agent to keep the span's trace, for this reason. */
int uview_span_keep(uview_span *span, const char *reason);

/* The headers for requests made within the span, as uview_status_text gives its text: a traceparent has 55 characters.
 * A length of 0: there is no such header. */
size_t uview_span_traceparent(const uview_span *span, char *buffer, size_t size);
size_t uview_span_tracestate(const uview_span *span, char *buffer, size_t size);

/* Ends the span, records it, and frees it. In a forked child, the end of a span that its parent began records nothing. */
void uview_span_end(uview_span *span);

/* Asks the agent to keep the trace with this id, of 32 lower-case hexadecimal digits, whichever services it goes through. */
int uview_trigger(const uview *service, const char *trace, const char *reason);

/* Says what the values of `metric` are about at present, such as the client behind a share; NULL or "": nothing. At most
 * 16 metrics of a service have such a text, and up to 160 characters of it are kept. */
int uview_set_subject(const uview *service, const char *metric, const char *text);

/* One relaxed atomic operation each, inline. */

/* Adds `count`. Wraps after 2^64. */
static inline void uview_counter_add(const uview_counter *counter, uint64_t count) {
    if (counter) {
        __atomic_fetch_add(counter->slot, count, __ATOMIC_RELAXED);
    }
}

static inline uint64_t uview_counter_get(const uview_counter *counter) {
    return counter ? __atomic_load_n(counter->slot, __ATOMIC_RELAXED) : 0;
}

/* Adds `difference`, which may be negative. */
static inline void uview_up_down_add(const uview_up_down *counter, int64_t difference) {
    if (counter) {
        __atomic_fetch_add(counter->slot, (uint64_t)difference, __ATOMIC_RELAXED);
    }
}

static inline int64_t uview_up_down_get(const uview_up_down *counter) {
    return counter ? (int64_t)__atomic_load_n(counter->slot, __ATOMIC_RELAXED) : 0;
}

/* Sets the value. NaN and infinities are read as a missing value. */
static inline void uview_gauge_set(const uview_gauge *gauge, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (gauge) {
        __atomic_store_n(gauge->slot, bits, __ATOMIC_RELAXED);
    }
}

static inline double uview_gauge_get(const uview_gauge *gauge) {
    uint64_t bits = gauge ? __atomic_load_n(gauge->slot, __ATOMIC_RELAXED) : 0;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#ifdef __cplusplus
}
#endif

#endif
