/*
 * A service that counts its requests:
 *
 *     cc payment.c $(pkg-config --cflags --libs uview) -o payment && ./payment
 */
#include <inttypes.h>
#include <stdio.h>
#include <uview.h>

int main(void) {
    uview *service;
    if (uview_open("payment", NULL, &service) != UVIEW_OK) {
        fprintf(stderr, "%s\n", uview_last_problem());
        return 1;
    }

    uview_label labels[] = {{"route", "/pay"}};
    uview_metric of_requests = {.unit = "{request}", .labels = labels, .label_count = 1};
    uview_metric of_durations = {.unit = "s", .parts_per_unit = 1000000};
    uview_counter *requests;
    uview_gauge *depth;
    uview_histogram *duration;
    /* A handle that is detached counts all the same, so nothing has to be checked to go on. */
    if (uview_register_counter(service, "http.server.requests", &of_requests, &requests) != UVIEW_OK) {
        fprintf(stderr, "%s\n", uview_last_problem());
    }
    uview_register_gauge(service, "queue.depth", NULL, &depth);
    uview_register_histogram(service, "http.server.request.duration", &of_durations, &duration);

    for (int request = 0; request < 1000; request++) {
        uview_counter_add(requests, 1);
        uview_gauge_set(depth, request % 10);
        uview_histogram_observe(duration, 1234); /* microseconds */
    }

    char text[1024];
    uview_status_text(service, text, sizeof text);
    printf("%" PRIu64 " requests\n%s\n", uview_counter_get(requests), text);

    uview_counter_release(requests);
    uview_gauge_release(depth);
    uview_histogram_release(duration);
    uview_close(service);
    return 0;
}
