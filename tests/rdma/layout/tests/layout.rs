//! Compares sizes and offsets of uview's structs, and its constants, with bindings generated from the installed header.
//! The assertions next to the structs are checked on every target; this test shows that they are right.

use std::mem::{offset_of, size_of};

use transport::verbs::sys;

macro_rules! same_layout {
    ($($ours:ident = $theirs:ident { $($own:ident = $($other:ident).+),* $(,)? })+) => {$(
        #[test]
        fn $theirs() {
            assert_eq!(size_of::<sys::$ours>(), size_of::<rdma_sys::$theirs>(), "size");
            $(assert_eq!(
                offset_of!(sys::$ours, $own),
                offset_of!(rdma_sys::$theirs, $($other).+),
                "offset of {}", stringify!($own)
            );)*
        }
    )+};
}

same_layout! {
    ProtectionDomain = ibv_pd { context = context, handle = handle }
    MemoryRegion = ibv_mr {
        context = context, pd = pd, address = addr, length = length, handle = handle, lkey = lkey, rkey = rkey,
    }
    Gid = ibv_gid {}
    Event = ibv_async_event { element = element, kind = event_type }
    DeviceAttributes = ibv_device_attr {
        firmware = fw_ver, node_guid = node_guid, system_guid = sys_image_guid, max_mr_size = max_mr_size, vendor = vendor_id,
        max_qp = max_qp, max_qp_wr = max_qp_wr, flags = device_cap_flags, max_sge = max_sge, max_cq = max_cq, max_cqe = max_cqe,
        max_mr = max_mr, max_pd = max_pd, max_qp_rd_atom = max_qp_rd_atom, max_ee_rd_atom = max_ee_rd_atom,
        max_res_rd_atom = max_res_rd_atom, max_qp_init_rd_atom = max_qp_init_rd_atom, unused = max_ee_init_rd_atom,
        max_pkeys = max_pkeys, ack_delay = local_ca_ack_delay, ports = phys_port_cnt,
    }
    PortAttributes = ibv_port_attr {
        state = state, max_mtu = max_mtu, active_mtu = active_mtu, gids = gid_tbl_len, flags = port_cap_flags,
        max_message = max_msg_sz, violations = bad_pkey_cntr, pkeys = pkey_tbl_len, lid = lid, sm_lid = sm_lid, subnet = lmc,
        link_layer = link_layer, port_flags = flags, more_flags = port_cap_flags2,
    }
    QueueCapacity = ibv_qp_cap {
        max_send_wr = max_send_wr, max_recv_wr = max_recv_wr, max_send_sge = max_send_sge, max_recv_sge = max_recv_sge,
        max_inline_data = max_inline_data,
    }
    QueuePairInit = ibv_qp_init_attr {
        qp_context = qp_context, send_cq = send_cq, receive_cq = recv_cq, srq = srq, capacity = cap, kind = qp_type,
        signal_all = sq_sig_all,
    }
    GlobalRoute = ibv_global_route {
        destination = dgid, flow_label = flow_label, source_index = sgid_index, hop_limit = hop_limit,
        traffic_class = traffic_class,
    }
    AddressVector = ibv_ah_attr {
        route = grh, lid = dlid, service_level = sl, path_bits = src_path_bits, rate = static_rate, is_global = is_global,
        port = port_num,
    }
    QueuePairAttributes = ibv_qp_attr {
        state = qp_state, current_state = cur_qp_state, path_mtu = path_mtu, migration = path_mig_state, qkey = qkey,
        receive_psn = rq_psn, send_psn = sq_psn, peer_number = dest_qp_num, access = qp_access_flags, capacity = cap,
        address = ah_attr, other_address = alt_ah_attr, pkey_index = pkey_index, other_pkey_index = alt_pkey_index,
        drained_event = en_sqd_async_notify, draining = sq_draining, reads_asked = max_rd_atomic,
        reads_answered = max_dest_rd_atomic, min_rnr_timer = min_rnr_timer, port = port_num, timeout = timeout,
        retries = retry_cnt, rnr_retries = rnr_retry, other_port = alt_port_num, other_timeout = alt_timeout,
        rate_limit = rate_limit,
    }
    Element = ibv_sge { address = addr, length = length, lkey = lkey }
    WorkRequest = ibv_send_wr {
        id = wr_id, next = next, elements = sg_list, count = num_sge, operation = opcode, flags = send_flags,
        remote_address = wr,
    }
    Completion = ibv_wc {
        id = wr_id, status = status, operation = opcode, vendor_error = vendor_err, bytes = byte_len, number = qp_num,
        source = src_qp, flags = wc_flags, pkey_index = pkey_index, source_lid = slid, service_level = sl,
        path_bits = dlid_path_bits,
    }
}

/// The structs that are declared only in part, from their beginning.
#[test]
fn partial_structs_contain_every_used_field() {
    assert_eq!(offset_of!(sys::QueuePair, number), offset_of!(rdma_sys::ibv_qp, qp_num));
    assert_eq!(offset_of!(sys::QueuePair, send_cq), offset_of!(rdma_sys::ibv_qp, send_cq));
    assert_eq!(offset_of!(sys::Context, operations), offset_of!(rdma_sys::ibv_context, ops));
    assert_eq!(offset_of!(sys::Context, command_fd), offset_of!(rdma_sys::ibv_context, cmd_fd));
    assert_eq!(offset_of!(sys::Context, event_fd), offset_of!(rdma_sys::ibv_context, async_fd));
    assert_eq!(offset_of!(sys::CompletionQueue, context), offset_of!(rdma_sys::ibv_cq, context));
    assert!(size_of::<sys::QueuePair>() <= size_of::<rdma_sys::ibv_qp>());
    assert!(size_of::<sys::Context>() <= size_of::<rdma_sys::ibv_context>());
}

/// Structs that rdma-sys also declares by hand are compared with the header itself, by a C compiler.
#[test]
fn the_header_has_the_same_layout() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/header.c");
    let output = std::process::Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only", file])
        .output()
        .expect("there is a C compiler");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn numbers_mean_the_same() {
    use rdma_sys::{
        ibv_access_flags, ibv_mtu, ibv_port_state, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_send_flags,
        ibv_wr_opcode,
    };
    use sys::{mask, state};
    use transport::verbs::Status;

    assert_eq!(sys::PORT_ACTIVE, ibv_port_state::IBV_PORT_ACTIVE);
    assert_eq!(sys::RELIABLE_CONNECTION, ibv_qp_type::IBV_QPT_RC);
    assert_eq!(sys::READ, ibv_wr_opcode::IBV_WR_RDMA_READ);
    assert_eq!(sys::SIGNALED, ibv_send_flags::IBV_SEND_SIGNALED.0);
    assert_eq!(sys::ACCESS_LOCAL_WRITE.cast_unsigned(), ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0);
    assert_eq!(sys::ACCESS_REMOTE_READ.cast_unsigned(), ibv_access_flags::IBV_ACCESS_REMOTE_READ.0);
    // The numbers that connect.rs gives to path MTUs.
    assert_eq!([ibv_mtu::IBV_MTU_256, ibv_mtu::IBV_MTU_1024, ibv_mtu::IBV_MTU_4096], [1, 3, 5]);
    let states = [
        (state::RESET, ibv_qp_state::IBV_QPS_RESET),
        (state::INIT, ibv_qp_state::IBV_QPS_INIT),
        (state::READY_TO_RECEIVE, ibv_qp_state::IBV_QPS_RTR),
        (state::READY_TO_SEND, ibv_qp_state::IBV_QPS_RTS),
        (state::ERROR, ibv_qp_state::IBV_QPS_ERR),
    ];
    let masks = [
        (mask::STATE, ibv_qp_attr_mask::IBV_QP_STATE),
        (mask::ACCESS, ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS),
        (mask::PKEY_INDEX, ibv_qp_attr_mask::IBV_QP_PKEY_INDEX),
        (mask::PORT, ibv_qp_attr_mask::IBV_QP_PORT),
        (mask::ADDRESS, ibv_qp_attr_mask::IBV_QP_AV),
        (mask::PATH_MTU, ibv_qp_attr_mask::IBV_QP_PATH_MTU),
        (mask::TIMEOUT, ibv_qp_attr_mask::IBV_QP_TIMEOUT),
        (mask::RETRIES, ibv_qp_attr_mask::IBV_QP_RETRY_CNT),
        (mask::RNR_RETRIES, ibv_qp_attr_mask::IBV_QP_RNR_RETRY),
        (mask::RECEIVE_PSN, ibv_qp_attr_mask::IBV_QP_RQ_PSN),
        (mask::READS_ASKED, ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC),
        (mask::MIN_RNR_TIMER, ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER),
        (mask::SEND_PSN, ibv_qp_attr_mask::IBV_QP_SQ_PSN),
        (mask::READS_ANSWERED, ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC),
        (mask::PEER_NUMBER, ibv_qp_attr_mask::IBV_QP_DEST_QPN),
    ];
    let statuses = [
        (Status::LOCAL_PROTECTION, rdma_sys::ibv_wc_status::IBV_WC_LOC_PROT_ERR),
        (Status::FLUSHED, rdma_sys::ibv_wc_status::IBV_WC_WR_FLUSH_ERR),
        (Status::REMOTE_INVALID, rdma_sys::ibv_wc_status::IBV_WC_REM_INV_REQ_ERR),
        (Status::REMOTE_ACCESS, rdma_sys::ibv_wc_status::IBV_WC_REM_ACCESS_ERR),
        (Status::REMOTE_OPERATION, rdma_sys::ibv_wc_status::IBV_WC_REM_OP_ERR),
        (Status::RETRIES_EXCEEDED, rdma_sys::ibv_wc_status::IBV_WC_RETRY_EXC_ERR),
    ];

    assert!(states.iter().all(|(ours, theirs)| ours == theirs), "{states:?}");
    assert!(masks.iter().all(|(ours, theirs)| ours.cast_unsigned() == theirs.0), "{masks:?}");
    assert!(statuses.iter().all(|(ours, theirs)| ours.0 == *theirs), "{statuses:?}");
}
