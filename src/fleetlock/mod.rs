//! The FleetLock protocol, both sides. Pure.

mod answer;
mod endpoint;
mod identity;
mod place;
mod reading;
mod retry_after;
mod wire;

pub use answer::{ReleaseAnswer, SlotAnswer};
pub use endpoint::{EndpointError, Operation, check_base_url, endpoint};
pub use identity::{MachineIdError, zincati_id};
pub use place::SlotPlace;
pub use reading::{read_answer, read_release};
pub use retry_after::{RETRY_AFTER_MAX, read_retry_after};
pub use wire::{
    ATTEMPT_HEADER, BOOT_HEADER, ClientParams, ErrorKind, NODE_HEADER, PROTOCOL_HEADER,
    PROTOCOL_HEADER_VALUE, REQUEST_BYTES_MAX, RemoteError, Request, RequestError, clean_kind,
    clean_value, is_group, is_node_name, parse_request,
};
