/* The least that a batch of linked READs takes: a chain that is built once, one post, and polling for its one completion without a pause.
 *
 *   read-loop READS BATCHES
 *
 * prints the median of the batches in nanoseconds. Each READ fetches a page, from a registration of its own as regions have one; both ends are
 * in this process. What fails ends it. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, MOST = 256, GID = 1, READS_UNDER_WAY = 16 };

static void *need(void *made, const char *what)
{
    if (made == NULL) {
        perror(what);
        exit(1);
    }
    return made;
}

static void check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "%s: %d\n", what, code);
        exit(1);
    }
}

static void connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
    struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ };
    check(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");

    struct ibv_qp_attr receive = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .max_dest_rd_atomic = READS_UNDER_WAY,
        .min_rnr_timer = 12,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .sgid_index = GID, .hop_limit = 64 } },
    };
    check(ibv_modify_qp(qp, &receive,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "RTR");

    struct ibv_qp_attr send = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = READS_UNDER_WAY
    };
    check(ibv_modify_qp(qp, &send,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC),
          "RTS");
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **arguments)
{
    int reads = count == 3 ? atoi(arguments[1]) : 0, batches = count == 3 ? atoi(arguments[2]) : 0;
    if (reads < 1 || reads > MOST || batches < 1) {
        fprintf(stderr, "read-loop READS BATCHES\n");
        return 2;
    }
    struct ibv_device **devices = need(ibv_get_device_list(NULL), "devices");
    struct ibv_context *context = need(ibv_open_device(need(devices[0], "a device")), "open");
    struct ibv_pd *pd = need(ibv_alloc_pd(context), "protection domain");
    struct ibv_cq *cq = need(ibv_create_cq(context, MOST + 1, NULL, NULL, 0), "completion queue");
    struct ibv_qp_init_attr wanted = { .send_cq = cq,
                                       .recv_cq = cq,
                                       .cap = { .max_send_wr = MOST, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
                                       .qp_type = IBV_QPT_RC };
    struct ibv_qp *reader = need(ibv_create_qp(pd, &wanted), "queue pair");
    struct ibv_qp *host = need(ibv_create_qp(pd, &wanted), "queue pair");
    union ibv_gid gid;
    check(ibv_query_gid(context, 1, GID, &gid), "address");
    connect_to(host, reader->qp_num, &gid);
    connect_to(reader, host->qp_num, &gid);

    char *to = need(aligned_alloc(PAGE, (size_t)reads * PAGE), "memory");
    struct ibv_mr *buffer = need(ibv_reg_mr(pd, to, (size_t)reads * PAGE, IBV_ACCESS_LOCAL_WRITE), "registration");
    static struct ibv_send_wr chain[MOST];
    static struct ibv_sge places[MOST];
    for (int n = 0; n < reads; n++) {
        char *from = need(aligned_alloc(PAGE, PAGE), "memory");
        memset(from, n + 1, PAGE);
        struct ibv_mr *region = need(ibv_reg_mr(pd, from, PAGE, IBV_ACCESS_REMOTE_READ), "registration");
        places[n] = (struct ibv_sge){ (uintptr_t)to + (size_t)n * PAGE, PAGE, buffer->lkey };
        chain[n] = (struct ibv_send_wr){
            .next = n + 1 < reads ? &chain[n + 1] : NULL,
            .sg_list = &places[n],
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_READ,
            .send_flags = n + 1 < reads ? 0 : IBV_SEND_SIGNALED,
            .wr.rdma = { .remote_addr = (uintptr_t)from, .rkey = region->rkey },
        };
    }

    uint64_t *times = need(calloc((size_t)batches, sizeof *times), "memory");
    for (int batch = 0; batch < batches; batch++) {
        struct ibv_send_wr *refused;
        struct ibv_wc completion;
        uint64_t start = now();
        check(ibv_post_send(reader, chain, &refused), "post");
        int found;
        while ((found = ibv_poll_cq(cq, 1, &completion)) == 0) {
        }
        times[batch] = now() - start;
        check(found != 1 || completion.status, "completion");
    }
    for (int n = 0; n < reads; n++) {
        check(to[(size_t)n * PAGE] != (char)(n + 1), "what was read");
    }
    qsort(times, (size_t)batches, sizeof *times, compare);
    printf("%llu\n", (unsigned long long)times[batches / 2]);
    return 0;
}
