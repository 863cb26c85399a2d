//! Loads libibverbs at run time, so that the program builds without rdma-core and runs with and without RDMA.
#![expect(unsafe_code, reason = "functions of a library that is only there at run time")]

use core::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::sys;

/// The library's file name. Its version number has not changed since 2006.
const NAME: &str = "libibverbs.so.1";

/// Why there is no RDMA library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library is not installed.
    #[error("cannot load {NAME}; it is part of rdma-core (Debian: apt-get install libibverbs1 ibverbs-providers)")]
    Missing(#[source] libloading::Error),
    /// The library is too old.
    #[error("{NAME} has no function {name}; rdma-core 32 or later has")]
    Function {
        /// The missing function.
        name: &'static str,
        /// The error of the loader.
        #[source]
        cause: libloading::Error,
    },
}

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions that this crate calls, by their names in the library without `ibv_`.
        #[derive(Clone, Copy, Debug)]
        pub struct Functions {
            $(#[doc = concat!("`", $symbol, "`.")] pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Functions {
            fn of(library: &libloading::Library) -> Result<Self, LoadError> {
                $(
                    // SAFETY: the function of that name has had this type since the library's first version that has
                    // it.
                    let found = unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>($symbol) };
                    let $name = *found.map_err(|cause| LoadError::Function { name: $symbol, cause })?;
                )+
                Ok(Self { $($name),+ })
            }
        }
    };
}

functions! {
    get_device_list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut sys::Device;
    free_device_list = "ibv_free_device_list": fn(*mut *mut sys::Device);
    get_device_name = "ibv_get_device_name": fn(*mut sys::Device) -> *const c_char;
    open_device = "ibv_open_device": fn(*mut sys::Device) -> *mut sys::Context;
    close_device = "ibv_close_device": fn(*mut sys::Context) -> c_int;
    query_device = "ibv_query_device": fn(*mut sys::Context, *mut sys::DeviceAttributes) -> c_int;
    query_port = "ibv_query_port": fn(*mut sys::Context, u8, *mut sys::PortAttributes) -> c_int;
    query_gid = "_ibv_query_gid_ex": fn(*mut sys::Context, u32, u32, *mut sys::GidEntry, u32, usize) -> c_int;
    get_event = "ibv_get_async_event": fn(*mut sys::Context, *mut sys::Event) -> c_int;
    ack_event = "ibv_ack_async_event": fn(*mut sys::Event);
    alloc_pd = "ibv_alloc_pd": fn(*mut sys::Context) -> *mut sys::ProtectionDomain;
    dealloc_pd = "ibv_dealloc_pd": fn(*mut sys::ProtectionDomain) -> c_int;
    reg_mr = "ibv_reg_mr": fn(*mut sys::ProtectionDomain, *mut c_void, usize, c_int) -> *mut sys::MemoryRegion;
    dereg_mr = "ibv_dereg_mr": fn(*mut sys::MemoryRegion) -> c_int;
    create_cq = "ibv_create_cq": fn(*mut sys::Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut sys::CompletionQueue;
    destroy_cq = "ibv_destroy_cq": fn(*mut sys::CompletionQueue) -> c_int;
    create_qp = "ibv_create_qp": fn(*mut sys::ProtectionDomain, *mut sys::QueuePairInit) -> *mut sys::QueuePair;
    modify_qp = "ibv_modify_qp": fn(*mut sys::QueuePair, *mut sys::QueuePairAttributes, c_int) -> c_int;
    destroy_qp = "ibv_destroy_qp": fn(*mut sys::QueuePair) -> c_int;
}

/// The RDMA library of this machine. Clones share it; it stays loaded while anything that came from it lives.
#[derive(Clone, Debug)]
pub struct Library(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    functions: Functions,
    /// Keeps the library loaded; `None` for a stand-in.
    _loaded: Option<libloading::Library>,
}

impl Library {
    /// Loads the library. Does not look for devices.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if it is not installed or older than 2020.
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: what the library runs when it is loaded touches nothing of this process.
        let loaded = unsafe { libloading::Library::new(NAME) }.map_err(LoadError::Missing)?;
        let functions = Functions::of(&loaded)?;
        Ok(Self(Arc::new(Inner { functions, _loaded: Some(loaded) })))
    }

    /// A library made of functions of this program.
    #[cfg(any(test, feature = "stand-in"))]
    pub(super) fn of(functions: Functions) -> Self {
        Self(Arc::new(Inner { functions, _loaded: None }))
    }

    pub(super) fn functions(&self) -> &Functions {
        &self.0.functions
    }
}
