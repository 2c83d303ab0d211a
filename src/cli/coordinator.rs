//! `lockkeeper coordinator`: the slot server as a service.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::CoordinatorSettings;
use crate::coordinator::slots::{GroupPolicy, Policies};
use crate::coordinator::store::file::FileStore;
use crate::coordinator::{
    ANSWER_WITHIN, BoundedListener, Desk, Metrics, View, admin, serve as serve_slots,
};
use crate::signals::clock;

/// Nodes ask twice an hour, and a connection that rests is closed; below the usual limit of 1024 files.
const CONNECTIONS_MAX: usize = 512;
/// How long open requests are waited for when it goes down: some writes of the store.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// Serves until `shutdown` is cancelled; then open requests are answered and the rest refused.
///
/// Being killed at any point is safe: what was answered is on disk.
///
/// # Errors
/// The store cannot be read or is in use, an address cannot be bound, or a part ended by itself:
/// then the process ends, so that systemd starts it anew.
pub async fn run(settings: CoordinatorSettings, shutdown: CancellationToken) -> anyhow::Result<()> {
    let folder = settings.state_dir.clone();
    let opened = tokio::task::spawn_blocking(move || FileStore::open(&folder));
    let (store, slots) = opened.await.context("opening the store")??;
    let policies: Policies = settings
        .groups
        .iter()
        .map(|group| (group.name.clone(), GroupPolicy { slots: group.slots }))
        .collect();
    let listen = settings.listen;
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let address = listener.local_addr().unwrap_or(listen);
    let door = admin::bind(&settings.run_dir).await?;
    let (desk, mut clerk) = Desk::open(store, slots, policies.clone(), || clock::now().wall);
    let status = tokio::spawn(tell_status(desk.views(), policies.clone()));
    let admin = tokio::spawn(admin::serve(door, desk.clone(), policies.clone()));
    let listener = BoundedListener::new(listener, CONNECTIONS_MAX, ANSWER_WITHIN);
    let stop = shutdown.clone().cancelled_owned();
    let mut server =
        tokio::spawn(serve_slots(listener, desk.clone(), policies, Metrics::new(), stop));
    let (groups, held) = (settings.groups.len(), settings.state_dir.display());
    tracing::info!(%address, groups, state_dir = %held, "coordinator ready");
    if address.ip().is_loopback() {
        tracing::info!("no other host reaches {address}: [coordinator] listen says who can");
    }
    notify(&[NotifyState::Ready]);

    let ended_by_itself = tokio::select! {
        () = shutdown.cancelled() => None,
        _ = &mut clerk => Some("the desk"),
        _ = &mut server => Some("the server"),
    };
    notify(&[NotifyState::Stopping]);
    admin.abort();
    status.abort();
    if let Some(part) = ended_by_itself.filter(|_| !shutdown.is_cancelled()) {
        server.abort();
        bail!("{part} ended by itself");
    }
    tracing::info!("coordinator stopping");
    // One that has ended already may have been looked at above, and is not to be asked again.
    if !server.is_finished() && timeout(STOP_WITHIN, &mut server).await.is_err() {
        // Only connections that carry no whole request are left: a write takes no such time.
        server.abort();
    }
    desk.close();
    if !clerk.is_finished() && timeout(STOP_WITHIN, clerk).await.is_err() {
        tracing::warn!("the last write of the slots has not ended");
    }
    remove_socket(admin::socket(&settings.run_dir)).await;
    Ok(())
}

/// Tells systemd who is down, at every change.
async fn tell_status(mut views: watch::Receiver<std::sync::Arc<View>>, policies: Policies) {
    loop {
        let status = status(&views.borrow_and_update(), &policies);
        notify(&[NotifyState::Status(&status)]);
        if views.changed().await.is_err() {
            return;
        }
    }
}

fn status(view: &View, policies: &Policies) -> String {
    let held = |name: &String| view.slots.groups.get(name).map_or(0, |g| g.holders.len());
    let groups: Vec<String> = policies
        .iter()
        .map(|(name, policy)| format!("{name}: {} of {} slots held", held(name), policy.slots))
        .collect();
    match &view.trouble {
        None => groups.join("; "),
        Some(trouble) => format!("cannot write: {trouble}; {}", groups.join("; ")),
    }
}

/// Without systemd there is nobody to tell.
fn notify(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

async fn remove_socket(file: PathBuf) {
    if let Err(error) = tokio::fs::remove_file(&file).await {
        tracing::debug!(%error, "the admin socket stays behind");
    }
}

#[cfg(test)]
mod tests;
