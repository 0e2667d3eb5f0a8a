//! What every handler of a request finds.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

use crate::control::Control;

/// The process behind the door, the key to it, and how many may come in.
pub(crate) struct Desk {
    pub control: Arc<dyn Control>,
    pub stop: Arc<Notify>,
    pub token: String,
    pub slots: Semaphore,
}
