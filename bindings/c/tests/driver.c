/* The driver of the C client: bindings/conformance/src/lib.rs has its commands. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uview.h>

enum { MAX_WORDS = 64, MAX_LABELS = 32, MAX_HANDLES = 4096, MAX_LINE = 8192, MAX_THREADS = 16, MAX_SPANS = 8 };

typedef enum { NONE, COUNTER, UP_DOWN, GAUGE, HISTOGRAM, SHARDED } kind;

typedef struct {
    char name[32];
    kind kind;
    union {
        uview_counter *counter;
        uview_up_down *up_down;
        uview_gauge *gauge;
        uview_histogram *histogram;
        uview_sharded *sharded;
    };
} metric;

typedef struct {
    char name[32];
    uview_span *span;
} named_span;

static uview *service;
static named_span spans[MAX_SPANS];
static metric metrics[MAX_HANDLES];
static char *words[MAX_WORDS];
static int count;
static int forked;

static void reply(const char *text) {
    printf("%s\n", text);
    fflush(stdout);
}

static void reply_code(int code) {
    if (code == UVIEW_OK) {
        reply("ok");
    } else {
        printf("%s %s\n", code == UVIEW_DETACHED ? "detached" : "error", uview_last_problem());
        fflush(stdout);
    }
}

/* The handle of this name, or a free place. */
static metric *find(const char *name, kind kind) {
    metric *free_place = NULL;
    for (int i = 0; i < MAX_HANDLES; i++) {
        if (metrics[i].kind != NONE && strcmp(metrics[i].name, name) == 0) {
            return kind == NONE ? &metrics[i] : NULL;
        }
        if (metrics[i].kind == NONE && !free_place) {
            free_place = &metrics[i];
        }
    }
    return kind == NONE ? NULL : free_place;
}

/* The value of a word KEY=VALUE, which is cut in two. */
static char *value_of(char *word) {
    char *equals = strchr(word, '=');
    if (!equals) {
        return word + strlen(word);
    }
    *equals = 0;
    return equals + 1;
}

static int is_label(const char *key) {
    return strncmp(key, "label:", 6) == 0;
}

static void open_service(void) {
    uview_label labels[MAX_LABELS];
    uview_options options = {.labels = labels};
    for (int i = 2; i < count; i++) {
        char *value = value_of(words[i]);
        if (is_label(words[i])) {
            labels[options.label_count++] = (uview_label){words[i] + 6, value};
        } else if (strcmp(words[i], "socket") == 0) {
            options.socket = value;
        } else if (strcmp(words[i], "instance") == 0) {
            options.instance = value;
        } else if (strcmp(words[i], "series") == 0) {
            options.max_series = strtoul(value, NULL, 10);
        } else if (strcmp(words[i], "label_sets") == 0) {
            options.max_label_sets = strtoul(value, NULL, 10);
        } else if (strcmp(words[i], "regions") == 0) {
            options.max_regions = strtoul(value, NULL, 10);
        }
    }
    reply_code(uview_open(words[1], &options, &service));
}

static void register_metric(kind kind) {
    uview_label labels[MAX_LABELS];
    uview_metric options = {.labels = labels};
    for (int i = 3; i < count; i++) {
        char *value = value_of(words[i]);
        if (is_label(words[i])) {
            labels[options.label_count++] = (uview_label){words[i] + 6, value};
        } else if (strcmp(words[i], "unit") == 0) {
            options.unit = value;
        } else if (strcmp(words[i], "aggregation") == 0) {
            options.aggregation = value;
        } else if (strcmp(words[i], "every") == 0) {
            options.read_every_ms = strtoull(value, NULL, 10);
        } else if (strcmp(words[i], "parts") == 0) {
            options.parts_per_unit = strtoull(value, NULL, 10);
        } else if (strcmp(words[i], "sub_bits") == 0) {
            options.sub_bits = strtoul(value, NULL, 10);
        } else if (strcmp(words[i], "max_bits") == 0) {
            options.max_bits = strtoul(value, NULL, 10);
        }
    }
    metric *place = find(words[1], kind);
    if (!place) {
        reply("error no place for a handle of this name");
        return;
    }
    int code = UVIEW_INTERNAL;
    switch (kind) {
    case COUNTER: code = uview_register_counter(service, words[2], &options, &place->counter); break;
    case UP_DOWN: code = uview_register_up_down(service, words[2], &options, &place->up_down); break;
    case GAUGE: code = uview_register_gauge(service, words[2], &options, &place->gauge); break;
    case HISTOGRAM: code = uview_register_histogram(service, words[2], &options, &place->histogram); break;
    case SHARDED: code = uview_register_sharded(service, words[2], &options, &place->sharded); break;
    case NONE: break;
    }
    if (code >= UVIEW_OK) {
        place->kind = kind;
        snprintf(place->name, sizeof place->name, "%s", words[1]);
    }
    reply_code(code);
}

static void write_value(const metric *metric, const char *text) {
    switch (metric->kind) {
    case COUNTER: uview_counter_add(metric->counter, strtoull(text, NULL, 10)); break;
    case UP_DOWN: uview_up_down_add(metric->up_down, strtoll(text, NULL, 10)); break;
    case GAUGE: uview_gauge_set(metric->gauge, strtod(text, NULL)); break;
    case HISTOGRAM: uview_histogram_observe(metric->histogram, strtoull(text, NULL, 10)); break;
    case SHARDED: uview_sharded_add(metric->sharded, strtoull(text, NULL, 10)); break;
    case NONE: break;
    }
}

static void get(const metric *metric) {
    switch (metric->kind) {
    case COUNTER: printf("ok %" PRIu64 "\n", uview_counter_get(metric->counter)); break;
    case SHARDED: printf("ok %" PRIu64 "\n", uview_sharded_get(metric->sharded)); break;
    case UP_DOWN: printf("ok %" PRId64 "\n", uview_up_down_get(metric->up_down)); break;
    case GAUGE: printf("ok %.17g\n", uview_gauge_get(metric->gauge)); break;
    case HISTOGRAM:
        printf("ok %" PRIu64 " %" PRIu64 "\n", uview_histogram_count(metric->histogram),
               uview_histogram_sum(metric->histogram));
        break;
    case NONE: break;
    }
    fflush(stdout);
}

/* Releases the handle, or ends its series. */
static void give_back(metric *metric, int remove) {
    switch (metric->kind) {
    case COUNTER: remove ? uview_counter_remove(service, metric->counter) : uview_counter_release(metric->counter); break;
    case UP_DOWN: remove ? uview_up_down_remove(service, metric->up_down) : uview_up_down_release(metric->up_down); break;
    case GAUGE: remove ? uview_gauge_remove(service, metric->gauge) : uview_gauge_release(metric->gauge); break;
    case HISTOGRAM:
        remove ? uview_histogram_remove(service, metric->histogram) : uview_histogram_release(metric->histogram);
        break;
    case SHARDED: remove ? uview_sharded_remove(service, metric->sharded) : uview_sharded_release(metric->sharded); break;
    case NONE: break;
    }
    metric->kind = NONE;
}

/* The span of this name; an empty name is a free place. */
static named_span *find_span(const char *name) {
    for (int i = 0; i < MAX_SPANS; i++) {
        if (strcmp(spans[i].name, name) == 0) {
            return &spans[i];
        }
    }
    return NULL;
}

static int kind_of_span(const char *name) {
    static const char *const kinds[] = {"internal", "server", "client", "producer", "consumer"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(kinds[i], name) == 0) {
            return UVIEW_SPAN_INTERNAL + i;
        }
    }
    return -1;
}

static void begin_span(void) {
    uview_span_options options = {0};
    for (int i = 3; i < count; i++) {
        char *value = value_of(words[i]);
        if (strcmp(words[i], "kind") == 0) {
            options.kind = kind_of_span(value);
        } else if (strcmp(words[i], "traceparent") == 0) {
            options.traceparent = value;
        } else if (strcmp(words[i], "tracestate") == 0) {
            options.tracestate = value;
        } else if (strcmp(words[i], "parent") == 0) {
            named_span *parent = find_span(value);
            options.parent = parent ? parent->span : NULL;
        }
    }
    named_span *place = find_span("");
    if (!place) {
        reply("error no place for a span");
        return;
    }
    int code = uview_span_begin(service, words[2], &options, &place->span);
    if (code >= UVIEW_OK) {
        snprintf(place->name, sizeof place->name, "%s", words[1]);
    }
    reply_code(code);
}

/* Says what happened, with attributes: a value that is a whole or another number is one. There are no truth values. */
static void say_event(uview_span *span) {
    int code = uview_span_event(span, words[2]);
    for (int i = 3; i < count && code == UVIEW_OK; i++) {
        char *value = value_of(words[i]), *end, *end_of_real;
        long long number = strtoll(value, &end, 10);
        double real = strtod(value, &end_of_real);
        if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
            reply("unsupported");
            return;
        }
        if (*value && !*end) {
            code = uview_span_event_integer(span, words[i], number);
        } else if (*value && !*end_of_real) {
            code = uview_span_event_double(span, words[i], real);
        } else {
            code = uview_span_event_text(span, words[i], value);
        }
    }
    reply_code(code);
}

static void say_of_span(const char *command, named_span *named) {
    char header[64];
    if (strcmp(command, "attribute") == 0) {
        reply_code(uview_span_text(named->span, words[2], words[3]));
    } else if (strcmp(command, "integer") == 0) {
        reply_code(uview_span_integer(named->span, words[2], strtoll(words[3], NULL, 10)));
    } else if (strcmp(command, "fail") == 0) {
        reply_code(uview_span_fail(named->span, words[2]));
    } else if (strcmp(command, "event") == 0) {
        say_event(named->span);
    } else if (strcmp(command, "keep") == 0) {
        reply_code(uview_span_keep(named->span, words[2]));
    } else if (strcmp(command, "context") == 0) {
        uview_span_traceparent(named->span, header, sizeof header);
        printf("ok %s\n", header);
        fflush(stdout);
    } else if (strcmp(command, "enter") == 0) {
        uview_span_enter(named->span);
        reply("ok");
    } else {
        if (strcmp(command, "leave") == 0) {
            uview_span_leave(named->span);
        }
        uview_span_end(named->span);
        memset(named, 0, sizeof *named);
        reply("ok");
    }
}

static int is_of_span(const char *command) {
    static const char *const commands[] = {"attribute", "integer", "event", "fail", "keep",
                                           "context", "enter", "leave", "end"};
    for (int i = 0; i < 9; i++) {
        if (strcmp(commands[i], command) == 0) {
            return 1;
        }
    }
    return 0;
}

typedef struct {
    const metric *metric;
    long times;
} work;

static void *add_often(void *argument) {
    const work *work = argument;
    for (long i = 0; i < work->times; i++) {
        if (work->metric->kind == GAUGE) {
            uview_gauge_add(work->metric->gauge, 1);
        } else {
            write_value(work->metric, "1");
        }
    }
    return NULL;
}

static void add_in_threads(const metric *metric, long number, long times) {
    pthread_t threads[MAX_THREADS];
    work work = {metric, times};
    long started = 0;
    while (started < number && started < MAX_THREADS &&
           pthread_create(&threads[started], NULL, add_often, &work) == 0) {
        started++;
    }
    for (long i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    reply(started == number ? "ok" : "error too few threads");
}

static void status(void) {
    static const char *const connections[] = {"off", "waiting", "registering", "registered"};
    uview_state state;
    int code = uview_status(service, &state);
    if (code != UVIEW_OK) {
        reply_code(code);
        return;
    }
    /* Asked for twice, as one does who does not know its length. */
    size_t size = uview_status_text(service, NULL, 0) + 1;
    char *text = calloc(size, 1);
    uview_status_text(service, text, size);
    char *problems = state.problems ? strstr(text, "\n- ") : NULL;
    for (char *at = problems; at && *at; at++) {
        if (*at == '\n') {
            *at = ';';
        }
    }
    printf("ok connection=%s series=%" PRIu64 " detached=%" PRIu64 " regions=%" PRIu64 " connections=%" PRIu64
           " forked=%d problems=%s\n",
           connections[state.connection], state.series, state.detached, state.regions, state.connections, state.forked,
           problems ? problems : "");
    fflush(stdout);
    free(text);
}

static void fork_and_wait(void) {
    pid_t child = fork();
    if (child == 0) {
        forked = 1;
        reply("ok");
        return;
    }
    int ended = 0;
    if (child > 0 && waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0) {
        reply("ok");
    } else {
        reply("error the child did not end well");
    }
}

static void give_everything_back(void) {
    for (int i = 0; i < MAX_HANDLES; i++) {
        give_back(&metrics[i], 0);
    }
    for (int i = 0; i < MAX_SPANS; i++) {
        uview_span_end(spans[i].span);
    }
    uview_close(service);
    service = NULL;
}

static void obey(void) {
    const char *command = words[0];
    if (strcmp(command, "open") == 0) {
        open_service();
    } else if (strcmp(command, "counter") == 0) {
        register_metric(COUNTER);
    } else if (strcmp(command, "updown") == 0) {
        register_metric(UP_DOWN);
    } else if (strcmp(command, "gauge") == 0) {
        register_metric(GAUGE);
    } else if (strcmp(command, "histogram") == 0) {
        register_metric(HISTOGRAM);
    } else if (strcmp(command, "sharded") == 0) {
        register_metric(SHARDED);
    } else if (strcmp(command, "status") == 0) {
        status();
    } else if (strcmp(command, "span") == 0) {
        begin_span();
    } else if (is_of_span(command)) {
        named_span *named = find_span(words[1]);
        if (named) {
            say_of_span(command, named);
        } else {
            reply("error no such span");
        }
    } else if (strcmp(command, "trigger") == 0) {
        reply_code(uview_trigger(service, words[1], words[2]));
    } else if (strcmp(command, "subject") == 0) {
        reply_code(uview_set_subject(service, words[1], words[2]));
    } else if (strcmp(command, "fork") == 0) {
        fork_and_wait();
    } else if (strcmp(command, "close") == 0) {
        uview_close(service);
        service = NULL;
        reply("ok");
    } else {
        metric *metric = count > 1 ? find(words[1], NONE) : NULL;
        if (!metric) {
            reply("error no such command or handle");
        } else if (strcmp(command, "get") == 0) {
            get(metric);
        } else if (strcmp(command, "threads") == 0) {
            add_in_threads(metric, atol(words[2]), atol(words[3]));
        } else if (strcmp(command, "release") == 0 || strcmp(command, "remove") == 0) {
            give_back(metric, command[2] == 'm');
            reply("ok");
        } else {
            write_value(metric, words[2]);
            reply("ok");
        }
    }
}

int main(void) {
    static char line[MAX_LINE];
    /* Byte by byte: none may be left in a buffer at a fork. */
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        count = 0;
        for (char *word = strtok(line, " "); word && count < MAX_WORDS; word = strtok(NULL, " ")) {
            words[count++] = word;
        }
        if (forked && count == 1 && strcmp(words[0], "exit") == 0) {
            break;
        }
        if (count > 0) {
            obey();
        }
    }
    give_everything_back();
    if (forked) {
        /* Without a search for leaks: what the parent's thread had on its stack is reachable by nobody in a child. */
        _exit(0);
    }
    return 0;
}
