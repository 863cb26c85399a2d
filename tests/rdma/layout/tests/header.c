/* What rdma-sys writes by hand as well, or hides in unions: asked of the header itself. The numbers are those of region/transport/src/verbs/sys.rs. */
#include <infiniband/verbs.h>

#define SAME(what, number) _Static_assert((what) == (number), #what)

SAME(sizeof(struct ibv_send_wr), 128);
SAME(offsetof(struct ibv_send_wr, next), 8);
SAME(offsetof(struct ibv_send_wr, sg_list), 16);
SAME(offsetof(struct ibv_send_wr, num_sge), 24);
SAME(offsetof(struct ibv_send_wr, opcode), 28);
SAME(offsetof(struct ibv_send_wr, send_flags), 32);
SAME(offsetof(struct ibv_send_wr, imm_data), 36);
SAME(offsetof(struct ibv_send_wr, wr.rdma.remote_addr), 40);
SAME(offsetof(struct ibv_send_wr, wr.rdma.rkey), 48);
SAME(sizeof(struct ibv_gid_entry), 32);
SAME(offsetof(struct ibv_gid_entry, gid_index), 16);
SAME(offsetof(struct ibv_gid_entry, port_num), 20);
SAME(offsetof(struct ibv_gid_entry, gid_type), 24);
SAME(offsetof(struct ibv_gid_entry, ndev_ifindex), 28);
SAME(IBV_GID_TYPE_ROCE_V2, 2);
SAME(IBV_LINK_LAYER_INFINIBAND, 1);
SAME(IBV_LINK_LAYER_ETHERNET, 2);
SAME(sizeof(struct ibv_context_ops), 32 * 8);
SAME(offsetof(struct ibv_context, ops), 8);
SAME(offsetof(struct ibv_context_ops, poll_cq), 11 * 8);
SAME(offsetof(struct ibv_context_ops, post_send), 25 * 8);
