//! The only file that reads clocks.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::Sender;

use crate::lifecycle::Event;
use crate::model::Now;
use crate::signals::bus::retry::Retry;

/// Both clocks, read now.
#[expect(clippy::disallowed_methods, reason = "this is the place that the ban points to")]
pub fn now() -> Now {
    Now { wall: Timestamp::now(), since_boot: since_boot() }
}

/// `CLOCK_BOOTTIME`: time since the boot, suspends included.
pub fn since_boot() -> Duration {
    // The kernel has this clock since 2.6.39; zero would only make a timeout late.
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map_or(Duration::ZERO, Duration::from)
}

/// Tells when somebody set the wall clock (a jump, not the slow pull of a time service).
pub async fn watch(events: Sender<Event>) {
    let mut retry = Retry::default();
    let mut told = None;
    loop {
        let end = tokio::select! {
            () = events.closed() => return,
            end = session(&events, &mut retry) => end,
        };
        let Err(error) = end else { return };
        if told != Some(error) {
            tracing::warn!(error = %error, "changes of the wall clock cannot be seen");
            told = Some(error);
        }
        tokio::time::sleep(retry.failed()).await;
    }
}

/// Ends well only when nobody listens any more.
async fn session(events: &Sender<Event>, retry: &mut Retry) -> Result<(), Errno> {
    let timer = Timer(TimerFd::new(
        ClockId::CLOCK_REALTIME,
        TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
    )?);
    arm(&timer)?;
    // Its successor is unsafe, which is forbidden here. The timer keeps its one descriptor until the
    // AsyncFd is dropped, which is what that one asks for.
    #[allow(deprecated)]
    let timer = AsyncFd::new(timer).map_err(errno)?;
    loop {
        let mut ready = timer.readable().await.map_err(errno)?;
        match nix::unistd::read(timer.get_ref(), &mut [0u8; 8]) {
            // The kernel cancels the timer when the clock is set, and says so in this way.
            Err(Errno::ECANCELED) => {
                retry.succeeded();
                if events.send(Event::ClockSet).await.is_err() {
                    return Ok(());
                }
            }
            Err(Errno::EAGAIN) => {
                ready.clear_ready();
                continue;
            }
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        arm(timer.get_ref())?;
    }
}

/// Arms the timer for a day that does not come; what counts is that it is cancelled.
fn arm(timer: &Timer) -> Result<(), Errno> {
    /// The year 2200, in seconds.
    const FAR: i64 = 7_258_118_400;
    timer.0.set(
        Expiration::OneShot(TimeSpec::new(FAR, 0)),
        TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET,
    )
}

fn errno(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[derive(Debug)]
struct Timer(TimerFd);

impl AsFd for Timer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn time_since_boot_moves_forward() {
        let first = since_boot();
        assert!(first > Duration::ZERO);
        assert!(now().since_boot >= first);
    }

    #[tokio::test]
    async fn an_armed_timer_waits_and_ends_with_its_listener() {
        let (events, mut heard) = tokio::sync::mpsc::channel(1);
        let watch = tokio::spawn(watch(events));
        tokio::task::yield_now().await;
        assert!(heard.try_recv().is_err());
        drop(heard);
        tokio::time::timeout(Duration::from_secs(10), watch).await.unwrap().unwrap();
    }
}
