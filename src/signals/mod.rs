//! Sources of events, one file each. None of them ends, and none of them polls while all is well.

pub mod bus;
pub mod clock;
pub mod found;
pub mod hold_file;
pub mod inotify;
pub mod logind;
pub mod node;
pub mod rpm_ostree;
pub mod system;
pub mod unix;
pub mod update_engine;
pub mod zincati;

/// Waits for what is under way; for ever where nothing is.
pub(crate) async fn if_any<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
